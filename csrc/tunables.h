// What headers of tunables have in common.
#ifndef TUNABLES_H
#define TUNABLES_H

#define ATTENTION_TEXT_(x) #x
#define ATTENTION_TEXT(x) ATTENTION_TEXT_(x)

// A tunable of 0 is not given.
constexpr int given_or(int value, int otherwise) { return value ? value : otherwise; }

#endif
