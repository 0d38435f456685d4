"""Traces of one script under two PyTorch versions: where they part, and whether that is why the result moved.

`model` reads what `harness/tracer` recorded, `align` matches two traces, `localise` finds what differs first, `ends`
compares results; these are pure. `runs` starts the script, `prove` puts outputs back, `judge` replays operators,
`answer` says what follows.
"""
