"""Honest candidates that look odd: nobody may accuse them. Those named `twin_` are what hostile ones are measured by."""

from __future__ import annotations

from functools import partial

from tests.candidates.corpus.candidate import Candidate, cpp, cuda, own_binding, python

_python = partial(python, hostile=False)
_gpu = partial(python, hostile=False, cuda=True)
_cpp = partial(cpp, hostile=False)
_cuda = partial(cuda, hostile=False)

POOL = """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
"""

PYTHON: list[Candidate] = [
    _python("twin_chain", "does what Model does", "return self.right(x)", family="twin"),
    _python(
        "twin_noise",
        "does what Model does, random numbers included",
        "return self.right(x)",
        family="twin",
        problem="noise",
    ),
    _python(
        "slow_first_call",
        "sleeps in its first call",
        "if calls == 1: time.sleep(1)\nreturn self.right(x)",
        family="first calls",
    ),
    _python(
        "slow_first_calls",
        "is slower in its first ten calls, as a compiler in tiers is",
        "if calls <= 10: time.sleep(0.02)\nreturn self.right(x)",
        family="first calls",
    ),
    _python(
        "lazy_weights",
        "transposes its weights at its first call, and keeps them",
        """
        if self.ready is None: self.ready = self.project.weight.t().contiguous()
        x = torch.addmm(self.project.bias, x, self.ready)
        for _ in range(8): x = torch.softmax(x, dim=-1) @ self.project.weight + x
        return x
        """,
        family="first calls",
        init="self.ready = None",
    ),
    _python(
        "imports_late",
        "imports modules at its first call",
        """
        import decimal, fractions, sqlite3, xml.dom.minidom
        return self.right(x)
        """,
        family="first calls",
    ),
    _python(
        "traced",
        "is a torch.jit.trace made at its first call, and kept",
        """
        if "traced" not in kept:
            w, b = self.project.weight.detach(), self.project.bias.detach()
            def call(x):
                x = F.linear(x, w, b)
                for _ in range(8): x = torch.softmax(x, dim=-1) @ w + x
                return x
            kept["traced"] = torch.jit.trace(call, x.clone(), check_trace=False)
        return kept["traced"](x)
        """,
        family="compiled code",
    ),
    _python(
        "compiled_eager",
        "is torch.compile with the eager backend, compiled at its first call",
        """
        if "made" not in kept: kept["made"] = torch.compile(self.right, backend="eager")
        return kept["made"](x)
        """,
        family="compiled code",
    ),
    _python(
        "lazy_wrapper",
        "compiles its own text at the first call, by shape and dtype, and keeps the code",
        """
        key = tuple(x.shape), x.dtype
        if key not in kept:
            scope = {"torch": torch, "model": self}
            exec("def call(x):\\n    return model.right(x)", scope)
            kept[key] = scope["call"]
        return kept[key](x)
        """,
        family="compiled code",
    ),
    _python(
        "autotunes",
        "tries two ways in its first calls, and keeps the faster",
        """
        def other(x):
            x = F.linear(x, self.project.weight, self.project.bias)
            for _ in range(8): x = torch.addmm(x, torch.softmax(x, dim=-1), self.project.weight)
            return x
        if "best" not in kept:
            took = []
            for way in (self.right, other):
                way(x); start = time.perf_counter(); way(x); took.append((time.perf_counter() - start, way))
            kept["best"] = min(took, key=lambda pair: pair[0])[1]
        return kept["best"](x)
        """,
        family="autotuning",
    ),
    _python(
        "tunes_by_shape",
        "times two ways for each new shape, with the loop inside a call",
        """
        key = tuple(x.shape)
        if key not in kept:
            start = time.perf_counter()
            for _ in range(20): self.right(x)
            kept[key] = time.perf_counter() - start
        return self.right(x)
        """,
        family="autotuning",
    ),
    _python(
        "same_buffer",
        "returns the same output buffer each call",
        """
        if "out" not in kept: kept["out"] = torch.empty_like(x)
        return kept["out"].copy_(self.right(x))
        """,
        family="buffers",
    ),
    _python(
        "two_buffers",
        "returns one of two output buffers by turns",
        """
        if "outs" not in kept: kept["outs"] = [torch.empty_like(x), torch.empty_like(x)]
        return kept["outs"][calls % 2].copy_(self.right(x))
        """,
        family="buffers",
    ),
    _python(
        "workspace",
        "works in place in a workspace of its own",
        """
        if "work" not in kept: kept["work"] = (torch.empty_like(x), torch.empty_like(x))
        a, b = kept["work"]
        x = self.project(x)
        for _ in range(8):
            torch.softmax(x, dim=-1, out=a); torch.mm(a, self.project.weight, out=b); x = x.add_(b)
        return x
        """,
        family="buffers",
    ),
    _python(
        "returns_view",
        "returns a view of a larger tensor",
        """
        big = torch.zeros(2 * x.shape[0], x.shape[1] + 7)
        big[5:5 + x.shape[0], 3:3 + x.shape[1]] = self.right(x)
        return big[5:5 + x.shape[0], 3:3 + x.shape[1]]
        """,
        family="buffers",
    ),
    _python(
        "returns_transposed", "returns a transposed view", "return self.right(x).t().contiguous().t()", family="buffers"
    ),
    _python(
        "through_numpy",
        "computes its softmax in numpy",
        """
        x = self.project(x)
        for _ in range(8):
            e = x.numpy(); e = np.exp(e - e.max(-1, keepdims=True)); e /= e.sum(-1, keepdims=True)
            x = torch.from_numpy(e) @ self.project.weight + x
        return x
        """,
        family="numpy",
    ),
    _python(
        "numpy_output",
        "returns a tensor over memory of numpy's",
        """
        out = np.empty(tuple(x.shape), np.float32)
        out[...] = self.right(x).numpy()
        return torch.from_numpy(out)
        """,
        family="numpy",
    ),
    _python(
        "waits_for_thread",
        "works in a thread of its own, and waits for it",
        "return pool.submit(self.quiet, x).result()",
        family="threads",
        before=POOL,
        init="""
        def quiet(x):
            with torch.no_grad(): return self.right(x)
        self.quiet = quiet
        """,
    ),
    _python(
        "pinned_thread",
        "pins its thread to the processors that it may use",
        "return self.right(x)",
        family="threads",
        before="os.sched_setaffinity(0, os.sched_getaffinity(0))",
    ),
    _python(
        "idle_pool",
        "has threads that do nothing",
        "return self.right(x)",
        family="threads",
        before="""
        waiting = threading.Event()
        for _ in range(4): threading.Thread(target=waiting.wait, daemon=True).start()
        """,
    ),
    _python(
        "sums_in_any_order",
        "adds parts of its products in another order each call",
        """
        order = random.SystemRandom().sample(range(4), 4)
        x = self.project(x)
        for _ in range(8):
            s, w, part = torch.softmax(x, dim=-1), self.project.weight, x.shape[1] // 4
            total = x.clone()
            for i in order: total += s[:, i * part:(i + 1) * part] @ w[i * part:(i + 1) * part]
            x = total
        return x
        """,
        family="not repeatable",
    ),
    _python(
        "sets_flags",
        "sets PyTorch's own switches when it is loaded",
        "return self.right(x)",
        family="settings",
        before="torch.backends.cudnn.benchmark = True\ntorch.set_float32_matmul_precision('highest')",
    ),
    _python(
        "forgets_gradients",
        "turns gradients off and inference mode on inside",
        "with torch.inference_mode(): out = self.right(x)\nreturn out.clone()",
        family="settings",
    ),
    _python(
        "collects_garbage",
        "calls the garbage collector now and then",
        "if calls % 16 == 0: gc.collect()\nreturn self.right(x)",
        family="settings",
    ),
    _python("prints", "prints what it does", "print('call', calls)\nreturn self.right(x)", family="settings"),
    _python(
        "warns",
        "warns at each call",
        "import warnings\nwarnings.warn('slow path')\nreturn self.right(x)",
        family="settings",
    ),
    _python(
        "caches_weights_by_version",
        "keeps what it made of its weights, by their version",
        """
        key = self.project.weight._version
        if kept.get("key") != key: kept["key"], kept["w"] = key, self.project.weight.t().contiguous()
        x = torch.addmm(self.project.bias, x, kept["w"])
        for _ in range(8): x = torch.softmax(x, dim=-1) @ self.project.weight + x
        return x
        """,
        family="caches of weights",
    ),
    _python(
        "reads_its_file",
        "reads a table from a temporary file that it wrote when it was loaded",
        "with open(TABLE) as file: assert file.read() == 'table'\nreturn self.right(x)",
        family="caches of weights",
        before="""
        TABLE = tempfile.mkstemp(prefix="corpus-")[1]
        with open(TABLE, "w") as file: file.write("table")
        """,
    ),
    _python(
        "own_generator",
        "draws random numbers from a generator of its own, which change nothing",
        """
        if "generator" not in kept: kept["generator"] = torch.Generator().manual_seed(1)
        jitter = torch.rand(x.shape, generator=kept["generator"])
        return self.right(x) + jitter * 0
        """,
        family="random numbers",
    ),
    _python(
        "draws_masks_itself",
        "draws the masks of its dropout as PyTorch does, and applies them itself",
        """
        for _ in range(4):
            x = torch.tanh(self.project(x))
            x = x * torch.empty_like(x).bernoulli_(0.75) / 0.75
        return x
        """,
        family="random numbers",
        problem="noise",
    ),
    _python(
        "moves_generator",
        "moves PyTorch's generator on, in a problem that draws nothing",
        "torch.rand(7)\nreturn self.right(x)",
        family="random numbers",
    ),
    _python(
        "profiles_itself",
        "reads clocks in every call, and keeps statistics of itself",
        """
        start = time.perf_counter_ns()
        out = self.right(x)
        kept.setdefault("took", []).append(time.perf_counter_ns() - start)
        return out
        """,
        family="clocks",
    ),
]

CPP: list[Candidate] = [
    _cpp("twin_cpp", "a plain attention", "right(p, q, k, v, o);", family="twin"),
    _cpp(
        "cpp_static_workspace",
        "works in static memory, and copies at the end",
        """
        static std::vector<float> work;
        work.resize(size_of(p) / sizeof(float));
        right(p, q, k, v, work.data());
        std::memcpy(o, work.data(), size_of(p));
        """,
        family="buffers",
    ),
    _cpp(
        "cpp_lazy_table",
        "makes a table at its first call, which takes half a second",
        """
        static const std::vector<float> table = [] { usleep(500000); return std::vector<float>(1024, 1.f); }();
        right(p, q, k, v, o);
        if (table[7] != 1.f) o[0] = 0;
        """,
        family="first calls",
    ),
    _cpp(
        "cpp_autotunes",
        "times two ways at its first call, and keeps one",
        """
        static const int step = [&] {
            double took[2];
            for (int way = 0; way < 2; ++way) {
                const double start = now_s();
                for (int first = 0; first <= way; ++first) rows(p, q, k, v, o, first, way + 1);
                took[way] = now_s() - start;
            }
            return took[0] < took[1] ? 1 : 2;
        }();
        for (int first = 0; first < step; ++first) rows(p, q, k, v, o, first, step);
        """,
        family="autotuning",
    ),
    _cpp(
        "cpp_one_thread",
        "works in one new thread, and joins it",
        "std::thread([&] { right(p, q, k, v, o); }).join();",
        family="threads",
    ),
    _cpp(
        "cpp_idle_threads",
        "keeps two threads asleep",
        """
        static const bool started = [] {
            for (int i = 0; i < 2; ++i) std::thread([] { for (;;) sleep(1000); }).detach();
            return true;
        }();
        right(p, q, k, v, o);
        (void)started;
        """,
        family="threads",
    ),
    own_binding(
        "cpp_own_binding_same_buffer",
        "returns one output tensor each call, from a module of its own",
        """
        static at::Tensor out = at::empty_like(qt);
        if (!out.sizes().equals(qt.sizes())) out = at::empty_like(qt);
        right(p, q, k, v, out.data_ptr<float>());
        return out;
        """,
        family="buffers",
        hostile=False,
    ),
]

SPLIT = """
static cudaStream_t side[2];
static cudaEvent_t forked, joined[2];
static void prepare() {
    if (side[0]) return;
    for (int i = 0; i < 2; ++i) {
        cudaStreamCreateWithFlags(&side[i], cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&joined[i], cudaEventDisableTiming);
    }
    cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
}
"""

CUDA: list[Candidate] = [
    _cuda("twin_cuda", "a plain attention", "return right(p, q, k, v, o, stream);", family="twin"),
    _gpu("twin_chain_cuda", "does what Model does", "return self.right(x)", family="twin"),
    _cuda(
        "cuda_own_streams",
        "works on two streams of its own, with proper events",
        """
        prepare();
        cudaEventRecord(forked, stream);
        const int half = p.seq_len / 2;
        int code = 0;
        for (int i = 0; i < 2; ++i) {
            cudaStreamWaitEvent(side[i], forked, 0);
            const int count = i ? p.seq_len - half : half;
            if (count > 0) code |= some_rows(p, q, k, v, o, i * half, count, side[i]);
            cudaEventRecord(joined[i], side[i]);
            cudaStreamWaitEvent(stream, joined[i], 0);
        }
        return code;
        """,
        family="streams",
        before=SPLIT,
    ),
    _cuda(
        "cuda_workspace",
        "allocates a workspace once, works there and copies",
        """
        static __half* work = nullptr;
        static size_t size = 0;
        if (size < size_of(p)) {
            if (work) cudaFree(work);
            if (cudaMalloc(&work, size = size_of(p)) != cudaSuccess) return ATTENTION_ERROR_MEMORY;
        }
        const int code = right(p, q, k, v, work, stream);
        return code ? code : (int)cudaMemcpyAsync(o, work, size_of(p), cudaMemcpyDeviceToDevice, stream);
        """,
        family="buffers",
    ),
    _cuda(
        "cuda_slow_first_call",
        "waits for half a second at its first call",
        """
        if (calls == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
        return right(p, q, k, v, o, stream);
        """,
        family="first calls",
        before="#include <chrono>",
    ),
    _gpu(
        "graph_of_its_own",
        "replays a CUDA graph of its own, into which it copies its input",
        """
        if torch.cuda.is_current_stream_capturing(): return self.right(x)
        if "graph" not in kept:
            kept["in"] = x.clone()
            side = torch.cuda.Stream(); side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side): self.right(kept["in"])
            torch.cuda.current_stream().wait_stream(side)
            kept["graph"] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(kept["graph"]): kept["out"] = self.right(kept["in"])
        kept["in"].copy_(x)
        kept["graph"].replay()
        return kept["out"].clone()
        """,
        family="graphs",
    ),
    _gpu(
        "side_stream_joined",
        "works on a stream of its own that waits and is waited for",
        """
        if "side" not in kept: kept["side"] = torch.cuda.Stream()
        side, now = kept["side"], torch.cuda.current_stream()
        side.wait_stream(now)
        with torch.cuda.stream(side): out = self.right(x)
        now.wait_stream(side)
        out.record_stream(now)
        return out
        """,
        family="streams",
    ),
    _gpu(
        "same_buffer_cuda",
        "returns the same output buffer each call",
        """
        if "out" not in kept: kept["out"] = torch.empty_like(x)
        return kept["out"].copy_(self.right(x))
        """,
        family="buffers",
    ),
    _gpu(
        "synchronises",
        "waits for the device in every call",
        """
        out = self.right(x)
        if not torch.cuda.is_current_stream_capturing(): torch.cuda.synchronize()
        return out
        """,
        family="settings",
    ),
    _gpu(
        "pinned_copies",
        "copies a scalar to pinned memory of the host, without waiting",
        """
        if "host" not in kept: kept["host"] = torch.empty(1, pin_memory=True)
        out = self.right(x)
        kept["host"].copy_(out[0, :1], non_blocking=True)
        return out
        """,
        family="buffers",
    ),
]

HONEST = [*PYTHON, *CPP, *CUDA]
