/* The C interface of every attention kernel in this project.
 *
 *     o = softmax(scale * q k^T + mask) v        for each batch entry and head on its own
 *
 * It knows nothing of PyTorch. One object file can therefore be called by the extension of any PyTorch
 * version, by a stand-alone program under a sanitizer, or through ctypes. "Machine code" and "runtime" become
 * separate factors that way: the very same object can run in two environments.
 *
 * Valid C99 and C++. Nothing here owns memory, and no function keeps a pointer after the work it started is
 * done.
 */
#ifndef ATTENTION_H
#define ATTENTION_H

#if defined(__GNUC__)
#define ATTENTION_EXPORT __attribute__((visibility("default")))
#else
#define ATTENTION_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Element types of q, k, v, o and the gradients, which all share one. */
enum { ATTENTION_FP16 = 0, ATTENTION_BF16 = 1, ATTENTION_FP32 = 2 };

/* Codes above zero are a CUDA runtime error (cudaError_t). Codes below zero are refusals: nothing was
 * launched and nothing was written, except for ATTENTION_ERROR_MEMORY, after which outputs are undefined. */
enum {
    ATTENTION_OK = 0,
    ATTENTION_ERROR_NULL = -1,      /* the problem or a tensor pointer is NULL */
    ATTENTION_ERROR_SHAPE = -2,     /* batch, heads or seq_len is below 1 */
    ATTENTION_ERROR_HEAD_DIM = -3,  /* the kernel has no code for this head_dim */
    ATTENTION_ERROR_DTYPE = -4,     /* dtype is none of ATTENTION_FP16, ATTENTION_BF16, ATTENTION_FP32 */
    ATTENTION_ERROR_ALIGNMENT = -5, /* a tensor pointer is less aligned than the kernel's loads need */
    ATTENTION_ERROR_TOO_LARGE = -6, /* more tiles than one launch can index */
    ATTENTION_ERROR_THREADS = -7,   /* threads is below 0 */
    ATTENTION_ERROR_MEMORY = -8,    /* no host memory for the workspace */
    ATTENTION_ERROR_OPTIONS = -9    /* the kernel has no code for one of the options */
};

typedef struct attention_problem {
    int batch;    /* >= 1 */
    int heads;    /* >= 1, the same for q, k and v but for kv_heads in attention_options */
    int seq_len;  /* >= 1, queries, and keys but for kv_len; need not be a multiple of anything */
    int head_dim; /* 64 or 128 in attention_scalar; other kernels may take others */
    int dtype;    /* ATTENTION_FP16, ATTENTION_BF16 or ATTENTION_FP32 */
    int causal;   /* nonzero: query i sees keys 0 to i */
    int threads; /* CPU only: worker threads, the caller's included; 0 means 1. Results do not depend on it */
    float scale; /* factor on q k^T, usually 1 / sqrt(head_dim); any value, zero and negative included */
} attention_problem;

/* q, k, v, o: contiguous [batch, heads, seq_len, head_dim], all on one device; o must not overlap the inputs.
 * Every element of o is written. A query row that sees a NaN in q, k or v is NaN; so is one whose scores
 * overflow fp32. A NaN of v at a key that a causal row does not see may reach that row or not (zero times
 * NaN).
 *
 * stream: a cudaStream_t for CUDA kernels, NULL being the legacy default stream; not looked at on a CPU. CUDA
 * kernels start on it and return at once, so only launch errors are seen here; faults surface when it is
 * synchronised. CPU kernels return when o is complete, and leave no thread behind.
 *
 * Returns ATTENTION_OK or a code that attention_error_string explains. Thread-safe. */
ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                       const void* v, void* o, void* stream);

/* What a problem may have beyond attention_problem. Later versions add fields at the end, and struct_size tells
 * which there are. A kernel refuses with ATTENTION_ERROR_OPTIONS what it has no code for: a set field, and a
 * struct that is larger than the one it was compiled with. It never ignores an option. */
typedef struct attention_options {
    int struct_size; /* sizeof(attention_options) of the caller */
    int kv_heads;    /* >= 1, divides heads: head h of q reads head h / (heads / kv_heads) of k and v */
    int kv_len;      /* >= 1, keys: k and v are [batch, kv_heads, kv_len, head_dim]. Causal: query i sees keys
                      * 0 to i, however many there are */
    const unsigned char* mask; /* NULL, or [batch, 1, seq_len, kv_len]: 0 hides a key from a query. The output
                                * of a query that sees no key is zero */
    const void* bias; /* NULL, or [batch, 1, seq_len, kv_len] of the problem's dtype: added to scale * q k^T */
    const unsigned char* keep; /* NULL, or [batch, heads, seq_len, kv_len], the draws of dropout: where it is 0
                                * a weight of the softmax counts as 0, and elsewhere keep_scale times */
    float keep_scale;          /* 1 / (1 - p) of dropout with probability p */
} attention_options;

/* Optional: attention_forward on problems with options. A kernel without it is run on none of those. */
ATTENTION_EXPORT int attention_forward_options(const attention_problem* problem,
                                               const attention_options* options, const void* q, const void* k,
                                               const void* v, void* o, void* stream);

/* Optional: o as above, and the gradients of q, k and v along d_o, in one call:
 *
 *     dv = P'^T d_o        dq = scale * dS k        dk = scale * dS^T q
 *
 * with P the softmax, P' what dropout leaves of it, and dS = P' * (d_o v^T) - P * rowsum(d_o * o). What a kernel keeps
 * from forward to backward, such as the logarithm of each row's sum, is its own affair: it is neither given nor
 * returned. Of a head of k and v that several heads of q read, the gradient is the sum over these. A query that sees
 * no key contributes nothing. The additive mask has no gradient here.
 *
 * d_o, o and dq are like q, dk and dv like k; contiguous, and none overlaps another. Each is aligned to 16 bytes where
 * its rows are a multiple of that. Every element of the four is written. options is never NULL: of a problem without
 * any it has the kv_heads and kv_len of q. */
ATTENTION_EXPORT int attention_backward(const attention_problem* problem, const attention_options* options,
                                        const void* q, const void* k, const void* v, const void* d_o, void* o,
                                        void* dq, void* dk, void* dv, void* stream);

/* One line in English, never NULL, valid for the life of the library. */
ATTENTION_EXPORT const char* attention_error_string(int code);

/* The compile-time choices in this binary, "NAME=value" separated by single spaces, as in
 * "BLOCK_M=32 NUM_WARPS=8 VEC_WIDTH=4 SYNC_POLICY=2 REDUCE=warp". What was built, not what was asked for. */
ATTENTION_EXPORT const char* attention_tunables(void);

/* Optional: only kernels that choose among several ways by the problem and the current device have it. One line
 * in English that says which way attention_forward takes, valid for the life of the library. */
ATTENTION_EXPORT const char* attention_choice(const attention_problem* problem);

#ifdef __cplusplus
}
#endif

#endif
