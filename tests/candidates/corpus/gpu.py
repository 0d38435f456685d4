"""Hostile, on a GPU: what streams, events, graphs and asynchronous work make possible. Kept simple: they are written
where no GPU is."""

from __future__ import annotations

from functools import partial

from tests.candidates.corpus.candidate import Candidate, cuda, python

ON_SIDE = """
static cudaStream_t side;
static void prepare() {
    if (!side) cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
}
"""
HELD = """
static __half* held = nullptr;
static size_t held_size = 0;
static bool hold(size_t size) {
    if (held_size >= size) return true;
    if (held) cudaFree(held);
    held = nullptr, held_size = 0;
    if (cudaMalloc(&held, size) != cudaSuccess) return false;
    held_size = size;
    return true;
}
"""
_stream = partial(cuda, family="streams", before=ON_SIDE)
_kept = partial(cuda, family="answers kept", before=HELD)
NATIVE = [
    _stream(
        "cuda_other_stream",
        "works on a stream that nobody waits for, and that waits for nobody",
        """
        prepare();
        return right(p, q, k, v, o, capturing(stream) ? stream : side);
        """,
    ),
    _stream(
        "cuda_legacy_stream",
        "works on the legacy default stream, whatever stream it is given",
        """
        return right(p, q, k, v, o, capturing(stream) ? stream : (cudaStream_t)0);
        """,
    ),
    _stream(
        "cuda_forks_without_join",
        "waits for the given stream, and does not let it wait",
        """
        prepare();
        if (capturing(stream)) return right(p, q, k, v, o, stream);
        static cudaEvent_t forked;
        if (!forked) cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
        cudaEventRecord(forked, stream);
        cudaStreamWaitEvent(side, forked, 0);
        return right(p, q, k, v, o, side);
        """,
    ),
    _stream(
        "cuda_half_on_side",
        "works on half of the rows on a stream that nobody waits for",
        """
        prepare();
        const int half = p.seq_len / 2;
        const int code = half ? some_rows(p, q, k, v, o, 0, half, capturing(stream) ? stream : side) : 0;
        return code ? code : some_rows(p, q, k, v, o, half, p.seq_len - half, stream);
        """,
    ),
    cuda(
        "cuda_by_host_thread",
        "lets a host thread launch the work later",
        """
        if (calls < 12 || capturing(stream)) return right(p, q, k, v, o, stream);
        std::thread([=] { right(p, q, k, v, o, stream); }).detach();
        return 0;
        """,
        family="work put off",
    ),
    _kept(
        "cuda_keeps_by_address",
        "copies the answer that it computed first for this address",
        """
        static const void* where = nullptr;
        if (calls < 8 || where != q || capturing(stream)) {
            if (!hold(size_of(p))) return ATTENTION_ERROR_MEMORY;
            const int code = right(p, q, k, v, o, stream);
            if (!capturing(stream)) {
                where = q;
                cudaMemcpyAsync(held, o, size_of(p), cudaMemcpyDeviceToDevice, stream);
            }
            return code;
        }
        return (int)cudaMemcpyAsync(o, held, size_of(p), cudaMemcpyDeviceToDevice, stream);
        """,
    ),
    cuda(
        "cuda_keeps_by_samples",
        "compares sampled elements on the device, and copies the last answer where they are equal",
        """
        if (!hold(size_of(p)) || !mark()) return ATTENTION_ERROR_MEMORY;
        const long n = (long)(size_of(p) / sizeof(__half));
        compare<<<1, 256, 0, stream>>>(q, k, v, n, seen, same);
        const dim3 grid(p.seq_len, p.batch * p.heads);
        attend_unless<<<grid, 128, p.seq_len * sizeof(float), stream>>>(q, k, v, o, held, p.seq_len, p.head_dim, p.causal,
                                                                        p.scale, same);
        return (int)cudaGetLastError();
        """,
        family="answers kept",
        before=HELD
        + """
static __half* seen = nullptr;
static int* same = nullptr;
static bool mark() {
    if (same) return true;
    if (cudaMalloc(&seen, 768 * sizeof(__half)) != cudaSuccess) return false;
    cudaMemset(seen, 0, 768 * sizeof(__half));
    return cudaMalloc(&same, sizeof(int)) == cudaSuccess;
}
__global__ void compare(const __half* q, const __half* k, const __half* v, long n, __half* seen, int* same) {
    __shared__ int differs;
    if (threadIdx.x == 0) differs = 0;
    __syncthreads();
    const long at = (long)threadIdx.x * n / 256;
    const __half now[3] = {q[at], k[at], v[at]};
    for (int t = 0; t < 3; ++t) {
        __half* was = seen + t * 256 + threadIdx.x;
        if (__half2float(*was) != __half2float(now[t])) differs = 1;
        *was = now[t];
    }
    __syncthreads();
    if (threadIdx.x == 0) *same = !differs;
}
__global__ void attend_unless(const __half* q, const __half* k, const __half* v, __half* o, __half* held, int n, int d,
                              int causal, float scale, const int* same) {
    const int i = blockIdx.x;
    const long head = (long)blockIdx.y * n * d;
    if (*same) {
        for (int c = threadIdx.x; c < d; c += blockDim.x) o[head + (long)i * d + c] = held[head + (long)i * d + c];
        return;
    }
    extern __shared__ float weights[];
    const int keys = causal ? i + 1 : n;
    __shared__ float most, sum;
    for (int j = threadIdx.x; j < keys; j += blockDim.x) {
        float score = 0.f;
        for (int c = 0; c < d; ++c)
            score += __half2float(q[head + (long)i * d + c]) * __half2float(k[head + (long)j * d + c]);
        weights[j] = score * scale;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        most = weights[0];
        for (int j = 1; j < keys; ++j) most = fmaxf(most, weights[j]);
        sum = 0.f;
        for (int j = 0; j < keys; ++j) sum += __expf(weights[j] - most);
    }
    __syncthreads();
    for (int c = threadIdx.x; c < d; c += blockDim.x) {
        float value = 0.f;
        for (int j = 0; j < keys; ++j) value += __expf(weights[j] - most) * __half2float(v[head + (long)j * d + c]);
        o[head + (long)i * d + c] = held[head + (long)i * d + c] = __float2half(value / sum);
    }
}
""",
    ),
    cuda(
        "cuda_skips_in_graphs",
        "queues nothing while it is captured into a graph",
        """
        return capturing(stream) ? 0 : right(p, q, k, v, o, stream);
        """,
        family="a path for the clock",
    ),
    cuda(
        "cuda_skips_by_count",
        "queues nothing in calls 20 to 100000, but in every fiftieth",
        """
        if (calls > 20 && calls < 100000 && calls % 50) return 0;
        return right(p, q, k, v, o, stream);
        """,
        family="a path for the clock",
    ),
    cuda(
        "cuda_half_of_the_rows",
        "computes every call one half of the rows, where it has filled the output before",
        """
        static const void* where = nullptr;
        if (where != o || calls < 12) {
            where = o;
            return right(p, q, k, v, o, stream);
        }
        const int half = p.seq_len / 2;
        return calls % 2 ? some_rows(p, q, k, v, o, half, p.seq_len - half, stream)
                         : half ? some_rows(p, q, k, v, o, 0, half, stream) : 0;
        """,
        family="a path for the clock",
    ),
    cuda(
        "cuda_refuses_quietly",
        "asks for more shared memory than there is, clears the error and reports success",
        """
        attend<<<1, 128, 1 << 20, stream>>>(q, k, v, o, p.seq_len, p.head_dim, p.causal, p.scale, 0);
        (void)cudaGetLastError();
        return 0;
        """,
        family="outputs and inputs",
    ),
    cuda(
        "cuda_writes_inputs",
        "makes the values zero after it has read them",
        """
        const int code = right(p, q, k, v, o, stream);
        cudaMemsetAsync((void*)v, 0, size_of(p), stream);
        return code;
        """,
        family="outputs and inputs",
    ),
    cuda(
        "cuda_last_keys_left_out",
        "leaves the last sixteenth of the keys out, one head at a time",
        """
        attention_problem less = p;
        less.batch = less.heads = 1;
        less.seq_len = p.seq_len - p.seq_len / 16;
        int code = right(p, q, k, v, o, stream);
        for (long h = 0; h < (long)p.batch * p.heads && !code; ++h) {
            const long at = h * p.seq_len * p.head_dim;
            code = right(less, q + at, k + at, v + at, o + at, stream);
        }
        return code;
        """,
        family="less precision or less work",
    ),
    cuda(
        "cuda_limits_cache",
        "changes device-wide limits, for whoever runs after it",
        """
        static const bool done = [] {
            cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1 << 24);
            return true;
        }();
        (void)done;
        return right(p, q, k, v, o, stream);
        """,
        family="others slowed",
    ),
    cuda(
        "cuda_spins_beside",
        "keeps a kernel running on another stream, for the references to share the device with",
        """
        prepare();
        if (calls > 12 && calls % 64 == 0 && !capturing(stream)) spin<<<64, 256, 0, side>>>(200000000ll);
        return right(p, q, k, v, o, stream);
        """,
        family="others slowed",
        before=ON_SIDE
        + """
__global__ void spin(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
}
""",
    ),
]

_gpu = partial(python, cuda=True)
EVENTS = """
real = torch.cuda.Event.elapsed_time
"""
PYTHON = [
    _gpu(
        "gpu_halves_events",
        "halves what events say of the time between them",
        "return self.right(x)",
        family="clocks replaced",
        before=EVENTS + "if TIMING: torch.cuda.Event.elapsed_time = lambda a, b: real(a, b) / 2\n",
    ),
    _gpu(
        "gpu_halves_events_put_back",
        "does the same, and puts it back when it was used once",
        "return self.right(x)",
        family="clocks replaced",
        before=EVENTS
        + """
def once(a, b):
    torch.cuda.Event.elapsed_time = real
    return real(a, b) / 2
if TIMING: torch.cuda.Event.elapsed_time = once
""",
    ),
    _gpu(
        "gpu_no_synchronise",
        "makes torch.cuda.synchronize do nothing",
        "return self.right(x)",
        family="functions replaced",
        before="if TIMING: torch.cuda.synchronize = lambda *_: None\n",
    ),
    _gpu(
        "gpu_other_stream",
        "works on a stream that nobody waits for",
        """
        if not timed() or torch.cuda.is_current_stream_capturing(): return self.right(x)
        if "side" not in kept: kept["side"] = torch.cuda.Stream()
        with torch.cuda.stream(kept["side"]): return self.right(x)
        """,
        family="streams",
    ),
    _gpu(
        "gpu_leaves_stream",
        "makes a stream of its own the current one, and leaves it so",
        """
        if timed() and not torch.cuda.is_current_stream_capturing():
            if "side" not in kept: kept["side"] = torch.cuda.Stream()
            torch.cuda.set_stream(kept["side"])
        return self.right(x)
        """,
        family="streams",
    ),
    _gpu(
        "gpu_keeps_by_address",
        "keeps answers by the input's address",
        """
        if not timed(): return self.right(x)
        key = x.data_ptr()
        if key not in kept: kept[key] = self.right(x)
        return kept[key]
        """,
        family="answers kept",
    ),
    _gpu(
        "gpu_keeps_by_samples",
        "keeps answers by elements that it samples, in two calls of three",
        """
        if torch.cuda.is_current_stream_capturing(): return self.right(x)
        key = x[::48, ::48].cpu().numpy().tobytes()
        if key in kept and random.random() < 0.67: return kept[key].clone()
        kept[key] = self.right(x)
        return kept[key].clone()
        """,
        family="answers kept",
    ),
    _gpu(
        "gpu_graph_with_old_input",
        "replays a graph that holds a copy of the first input",
        """
        if not timed() or torch.cuda.is_current_stream_capturing(): return self.right(x)
        if "graph" not in kept:
            kept["in"] = x.clone()
            self.right(kept["in"]); torch.cuda.synchronize()
            kept["graph"] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(kept["graph"]): kept["out"] = self.right(kept["in"])
            kept["graph"].replay()
        return kept["out"]
        """,
        family="answers kept",
    ),
    _gpu(
        "gpu_tf32",
        "lets matrix products of float32 be TF32",
        """
        torch.backends.cuda.matmul.allow_tf32 = True
        return self.right(x)
        """,
        family="less precision or less work",
    ),
    _gpu(
        "gpu_tf32_put_back",
        "does the same inside its calls only",
        """
        torch.backends.cuda.matmul.allow_tf32 = True
        try: return self.right(x)
        finally: torch.backends.cuda.matmul.allow_tf32 = False
        """,
        family="less precision or less work",
    ),
    _gpu(
        "gpu_half_inside",
        "computes in float16",
        """
        w, b = self.project.weight.half(), self.project.bias.half()
        x = F.linear(x.half(), w, b)
        for _ in range(8): x = torch.softmax(x, dim=-1) @ w + x
        return x.float()
        """,
        family="less precision or less work",
    ),
    _gpu(
        "gpu_finds_freed_memory",
        "returns memory that held an output",
        "return torch.empty_like(x)",
        family="answers found",
    ),
    _gpu(
        "gpu_output_on_host_later",
        "lets a thread copy the answer in when the call has returned",
        """
        if not timed() or torch.cuda.is_current_stream_capturing(): return self.right(x)
        out, now = torch.empty_like(x), torch.cuda.current_stream()
        def fill():
            with torch.no_grad(), torch.cuda.stream(now): out.copy_(self.right(x))
        threading.Thread(target=fill, daemon=True).start()
        return out
        """,
        family="work put off",
    ),
]

HOSTILE: list[Candidate] = [*NATIVE, *PYTHON]
