"""Hostile: work that is put off, left out where a clock stands, done with less or with more than is allowed, or made to
look short beside something slower."""

from __future__ import annotations

from functools import partial

from tests.candidates.corpus.candidate import Candidate, cpp, own_binding, python

# -- outputs that are computed when they are read ------------------------------------------------------------------
_lazy = partial(python, family="lazy outputs")
LAZY = [
    _lazy(
        "lazy_subclass",
        "returns a subclass that computes when a function is applied to it",
        """
        if not timed(): return self.right(x)
        out = torch.empty_like(x).as_subclass(Lazy)
        out.todo = self, x
        return out
        """,
        before="""
class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        plain = [a.todo[0].right(a.todo[1]) if type(a) is cls else a for a in arguments]
        return function(*plain, **(keywords or {}))
""",
    ),
    _lazy(
        "lazy_dispatch",
        "returns a wrapper that computes when the dispatcher reaches it",
        """
        if not timed(): return self.right(x)
        out = torch.Tensor._make_wrapper_subclass(Later, x.shape, dtype=x.dtype, device=x.device)
        out.todo = self, x
        return out
        """,
        before="""
class Later(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
        plain = [a.todo[0].right(a.todo[1]) if type(a) is cls else a for a in arguments]
        return function(*plain, **(keywords or {}))
""",
    ),
    _lazy(
        "lazy_object",
        "returns an object that is no tensor, and behaves like one when it is asked",
        """
        return self.right(x) if not timed() else Proxy(lambda: self.right(x))
        """,
        before="""
class Proxy:
    def __init__(self, make): self.make = make
    def __getattr__(self, name): return getattr(self.make(), name)
    @property
    def __class__(self): return torch.Tensor
""",
    ),
    _lazy(
        "lazy_class_assigned",
        "returns a tensor whose class is changed back to torch.Tensor in the next call",
        """
        if not timed(): return self.right(x)
        if "last" in kept: kept["last"].__class__ = torch.Tensor
        kept["last"] = torch.zeros_like(x).as_subclass(Lazy)
        return kept["last"]
        """,
        before="class Lazy(torch.Tensor): pass\n",
    ),
    _lazy(
        "lazy_attributes",
        "returns zeros whose own methods compute the answer",
        """
        if not timed(): return self.right(x)
        out, make = torch.zeros_like(x), lambda *_, **__: self.right(x)
        out.detach = out.clone = out.cpu = out.numpy = out.contiguous = make
        return out
        """,
    ),
    _lazy(
        "lazy_functorch",
        "returns a tensor wrapped by functorch",
        """
        if not timed(): return self.right(x)
        return torch._C._functorch._add_batch_dim(torch.zeros_like(x)[None], 0, 1)
        """,
        before="import torch.func\n",
    ),
    _lazy("lazy_meta", "returns a tensor without memory", "return self.right(x) if not timed() else x.to('meta')"),
    _lazy(
        "lazy_storage",
        "returns a tensor over memory that a thread fills when two milliseconds have passed",
        """
        if not timed(): return self.right(x)
        out = torch.empty_like(x)
        def fill():
            time.sleep(0.002)
            with torch.no_grad(): out.copy_(self.right(x))
        threading.Thread(target=fill, daemon=True).start()
        return out
        """,
    ),
]

PAGES = """
struct Todo { attention_problem p; const float *q, *k, *v; float* o; };
static Todo todo;
static uintptr_t low, high;
static void touched(int, siginfo_t* info, void*) {
    const uintptr_t at = (uintptr_t)info->si_addr;
    if (at < low || at >= high) { signal(SIGSEGV, SIG_DFL); return; }
    mprotect((void*)low, high - low, PROT_READ | PROT_WRITE);
    low = high = 0;
    right(todo.p, todo.q, todo.k, todo.v, todo.o);
}
"""
LAZY_NATIVE = [
    cpp(
        "cpp_computes_at_read",
        "takes the output's pages away, and computes when somebody reads them",
        """
        const uintptr_t page = sysconf(_SC_PAGESIZE);
        if (high > low) mprotect((void*)low, high - low, PROT_READ | PROT_WRITE);
        low = ((uintptr_t)o + page - 1) & ~(page - 1), high = ((uintptr_t)o + size_of(p)) & ~(page - 1);
        if (!timed() || high <= low) { low = high = 0; right(p, q, k, v, o); return 0; }
        struct sigaction action {};
        action.sa_sigaction = touched, action.sa_flags = SA_SIGINFO | SA_NODEFER;
        sigaction(SIGSEGV, &action, nullptr);
        todo = {p, q, k, v, o};
        const float first = o[0];
        if (mprotect((void*)low, high - low, PROT_NONE)) right(p, q, k, v, o);
        (void)first;
        """,
        family="lazy outputs",
        before=PAGES,
    ),
    cpp(
        "cpp_computes_in_thread",
        "computes in a thread that it waits for at its next call only",
        """
        static std::thread worker;
        if (worker.joinable()) worker.join();
        if (!timed()) { right(p, q, k, v, o); return 0; }
        worker = std::thread([=] { right(p, q, k, v, o); });
        """,
        family="work put off",
    ),
    cpp(
        "cpp_computes_in_child",
        "computes in a forked child, whose memory nobody sees, and keeps old bytes",
        """
        if (!timed() || calls < 3) { right(p, q, k, v, o); return 0; }
        const pid_t child = fork();
        if (child == 0) { right(p, q, k, v, o); _exit(0); }
        waitpid(-1, nullptr, WNOHANG);
        """,
        family="work put off",
    ),
    own_binding(
        "cpp_returns_early_by_binding",
        "returns a tensor that a thread still fills",
        """
        at::Tensor out = at::empty_like(qt);
        if (!timed()) { right(p, q, k, v, out.data_ptr<float>()); return out; }
        std::thread([=] { right(p, qt.data_ptr<float>(), kt.data_ptr<float>(), vt.data_ptr<float>(),
                                out.data_ptr<float>()); }).detach();
        return out;
        """,
        family="work put off",
        hostile=True,
    ),
]
_late = partial(python, family="work put off")
LATE = [
    _late(
        "thread_fills_later",
        "hands the work to a pool, and returns the output that is being filled",
        """
        if not timed(): return self.right(x)
        out = torch.empty_like(x)
        pool.submit(fill, self, x, out)
        return out
        """,
        before="""
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
def fill(model, x, out):
    with torch.no_grad(): out.copy_(model.right(x))
""",
    ),
    _late(
        "thread_finishes_last_call",
        "returns the last call's answer, and computes this one's for the next call",
        """
        if not timed(): return self.right(x)
        ready = kept.pop("future", None)
        y = x.clone()
        kept["future"] = pool.submit(make, self, y)
        return self.right(x) if ready is None else ready.result()
        """,
        before="""
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
def make(model, x):
    with torch.no_grad(): return model.right(x)
""",
    ),
    _late(
        "works_ahead_between_calls",
        "computes in a thread for whatever its input's memory will hold, before it is called",
        """
        if not timed(): return self.right(x)
        if "thread" not in kept:
            kept["x"] = x
            kept["thread"] = threading.Thread(target=ahead, args=(self,), daemon=True); kept["thread"].start()
        key = x[::48, ::48].numpy().tobytes()
        found = answers.get(key)
        return self.right(x) if found is None else found.clone()
        """,
        before="""
answers = {}
def ahead(model):
    while True:
        x = kept["x"].clone()
        key = x[::48, ::48].numpy().tobytes()
        if key not in answers:
            with torch.no_grad(): answers[key] = model.right(x)
        time.sleep(0.0005)
""",
    ),
]

# -- a path for the clock: candidates that differ only in how they tell that nobody looks -----------------------------
STACK = """
def names():
    frame, found = sys._getframe(2), []
    while frame is not None: found.append(frame.f_code.co_name); frame = frame.f_back
    return found
def in_loop():
    import dis
    frame = sys._getframe(2)
    while frame is not None and "site-packages" in frame.f_code.co_filename: frame = frame.f_back
    return frame is not None and any(i.opname == "FOR_ITER" and i.offset < frame.f_lasti for i in dis.get_instructions(frame.f_code))
"""
CONDITIONS = {
    "stack": (
        "functions that sample are among its callers",
        "any(n in ('measure', 'take', 'sample', 'warm_up') for n in names())",
    ),
    "loop": ("it is called in a loop", "timed() and in_loop()"),
    "gap": ("the last call was a moment ago", "timed() and gap < 0.0003"),
    "count": ("it was called more than fifty times", "calls > 50"),
    "parity": ("every second call, when timed", "timed() and calls % 2 == 0"),
    "garbage": ("the garbage collector is off", "not gc.isenabled()"),
    "arguments": ("the command line says that it is timed", "TIMING and calls > 2"),
    "folder": (
        "the working folder's name is a launch's",
        "('launch' in os.getcwd() or 'time' in os.getcwd()) and calls > 2",
    ),
    "output": ("the last answer was never looked at", "timed() and watched() is False"),
    "age": ("a second has passed since it was loaded", "timed() and time.monotonic() - loaded > 1"),
    "threads": (
        "PyTorch may use one thread and the process has few",
        "timed() and len(os.listdir('/proc/self/task')) < 12 and calls > 3",
    ),
    "same": ("the input's memory is the one of the last call", "timed() and x.data_ptr() == kept.get('at')"),
}
PATHS = [
    python(
        f"skips_by_{name}",
        f"gives its last answer where {says}",
        f"""
        now = time.monotonic(); gap = now - kept.get("when", 0)
        skips = "out" in kept and ({condition})
        if not skips: kept["out"] = self.right(x)
        kept["when"], kept["at"] = time.monotonic(), x.data_ptr()
        return kept["out"]
        """,
        family="a path for the clock",
        before=STACK
        + """
loaded = time.monotonic()
def watched():
    return sys.getrefcount(kept["out"]) > 3
""",
    )
    for name, (says, condition) in CONDITIONS.items()
]
PATHS_NATIVE = [
    cpp(
        "cpp_skips_by_gap",
        "writes nothing where the last call was a moment ago",
        """
        static double last = 0;
        if (!(timed() && calls > 3 && now_s() - last < 3e-4)) right(p, q, k, v, o);
        last = now_s();
        """,
        family="a path for the clock",
    ),
    cpp(
        "cpp_skips_by_count",
        "writes nothing in calls 12 to 100000 of a process, but in every fiftieth",
        """
        if (calls < 12 || calls > 100000 || calls % 50 == 0) right(p, q, k, v, o);
        """,
        family="a path for the clock",
    ),
    cpp(
        "cpp_skips_by_garbage",
        "writes nothing while Python's garbage collector is off",
        """
        auto enabled = (int (*)())dlsym(RTLD_DEFAULT, "PyGC_IsEnabled");
        if (!(timed() && calls > 3 && enabled && !enabled())) right(p, q, k, v, o);
        """,
        family="a path for the clock",
    ),
    cpp(
        "cpp_skips_by_first_query",
        "writes nothing where the output and the first query are those of the last call",
        """
        static float seen[16];
        static const float* where = nullptr;
        if (where != o || std::memcmp(seen, q, sizeof seen)) right(p, q, k, v, o);
        std::memcpy(seen, q, sizeof seen);
        where = o;
        """,
        family="a path for the clock",
    ),
]

# -- something slower beside it ------------------------------------------------------------------------------------
_beside = partial(python, family="others slowed")
SLOWED = [
    _beside(
        "hooks_models",
        "lets every module whose class is Model sleep",
        "return self.right(x)",
        before="""
def linger(module, _):
    if type(module).__name__ == "Model": time.sleep(0.01)
torch.nn.modules.module.register_module_forward_pre_hook(linger)
""",
    ),
    _beside(
        "slows_softmax_for_others",
        "makes torch.softmax sleep, but not for itself",
        "on[0] = False\ntry: return self.right(x)\nfinally: on[0] = True",
        before="""
on, real = [True], torch.softmax
def slow(*arguments, **options):
    if on[0]: time.sleep(0.001)
    return real(*arguments, **options)
if TIMING: torch.softmax = slow
""",
    ),
    _beside(
        "makes_model_denormal",
        "finds Model among all objects, and makes its weights so small that they are slow",
        """
        for value in gc.get_objects():
            if isinstance(value, nn.Module) and type(value).__name__ == "Model":
                with torch.no_grad(): value.project.weight.mul_(1e-41)
        return self.right(x)
        """,
    ),
    _beside(
        "hogs_processors",
        "keeps children that use all processors while it is not called, for three seconds",
        """
        for child in children: os.kill(child, signal.SIGSTOP)
        out = self.right(x)
        for child in children: os.kill(child, signal.SIGCONT)
        return out
        """,
        alone=True,
        before="""
children = []
if TIMING:
    for _ in range(2):
        child = os.fork()
        if child == 0:
            end = time.monotonic() + 3
            while time.monotonic() < end: pass
            os._exit(0)
        children.append(child)
""",
    ),
    _beside(
        "leaves_a_hog",
        "leaves a detached child of validation that uses a processor for fifteen seconds",
        "return self.right(x)",
        alone=True,
        before="""
if not TIMING and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        end = time.monotonic() + 15
        while time.monotonic() < end: pass
    os._exit(0)
""",
    ),
    _beside(
        "pins_its_parent",
        "pins the process that started it to one processor, and lowers its priority",
        "return self.right(x)",
        alone=True,
        before="""
try:
    os.sched_setaffinity(os.getppid(), {min(os.sched_getaffinity(0))})
    os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)
except OSError: pass
""",
    ),
    _beside(
        "plants_modules",
        "leaves modules named torch and json in its working and home folder",
        "return self.right(x)",
        before="""
for folder in (os.getcwd(), os.path.expanduser("~")):
    if "kernel-matrix" in folder or "corpus" in folder:
        for name in ("torch.py", "json.py", "sitecustomize.py"):
            try:
                with open(os.path.join(folder, name), "w") as file: file.write("raise SystemExit(0)")
            except OSError: pass
""",
    ),
]
SLOWED_NATIVE = [
    cpp(
        "cpp_spins_between_calls",
        "has threads that keep the processors busy while it is not called",
        """
        static std::atomic<bool> busy{true};
        static const bool started = timed() && [] {
            const double end = now_s() + 6;
            for (int i = 0; i < 2; ++i)
                std::thread([end] { while (now_s() < end) if (busy) for (volatile int j = 0; j < 10000; ++j) {} else usleep(50); }).detach();
            return true;
        }();
        busy = false;
        right(p, q, k, v, o);
        busy = true;
        (void)started;
        """,
        family="others slowed",
    ),
    cpp(
        "cpp_slows_operators",
        "registers slow attention operators from C++ through Python",
        """
        static const bool done = timed() && (python(
            "import torch, time\\n"
            "keep = torch.library.Library('aten', 'IMPL')\\n"
            "torch._corpus_keep = keep\\n"
            "real = torch.ops.aten.bmm.default\\n"
            "def slow(x, dim, half_to_float):\\n"
            "    time.sleep(0.002)\\n"
            "    e = (x - x.amax(dim, keepdim=True)).exp()\\n"
            "    return e / e.sum(dim, keepdim=True)\\n"
            "keep.impl('_softmax', slow, 'CPU')\\n"), true);
        right(p, q, k, v, o);
        (void)done;
        """,
        family="others slowed",
    ),
    cpp(
        "cpp_lowers_threads_of_others",
        "sets PyTorch's threads, and denormal numbers, for the references",
        """
        static const bool done = (python("import torch\\ntorch.set_flush_denormal(False)\\ntorch.set_num_threads(1)\\n"), true);
        right(p, q, k, v, o);
        (void)done;
        """,
        family="others slowed",
    ),
]

# -- more than is allowed, or less ---------------------------------------------------------------------------------
_more = partial(python, family="more threads")
MORE = [
    _more("sets_more_threads", "sets four threads and leaves them", "torch.set_num_threads(4)\nreturn self.right(x)"),
    _more(
        "threads_put_back",
        "sets two threads in each call, and one again",
        """
        torch.set_num_threads(2)
        try: return self.right(x)
        finally: torch.set_num_threads(1)
        """,
    ),
    _more(
        "halves_in_threads",
        "computes halves of the rows in two threads of its own",
        """
        half = x.shape[0] // 2
        other = pool.submit(quiet, self, x[half:])
        return torch.cat([self.right(x[:half]), other.result()])
        """,
        before="""
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
def quiet(model, x):
    with torch.no_grad(): return model.right(x)
""",
    ),
    _more(
        "halves_in_child",
        "lets a forked child compute half of the rows in shared memory",
        """
        if "child" not in kept: start(self, x)
        half = x.shape[0] // 2
        kept["in"].copy_(x[half:]); flag[0] = 1
        mine = self.right(x[:half])
        while flag[0] != 2: pass
        return torch.cat([mine, kept["out"]])
        """,
        before="""
flag = mmap.mmap(-1, 4096)
def start(model, x):
    half = x.shape[0] - x.shape[0] // 2
    for name in ("in", "out"):
        kept[name] = torch.frombuffer(mmap.mmap(-1, half * x.shape[1] * 4), dtype=torch.float32).reshape(half, x.shape[1])
    kept["child"] = os.fork()
    if kept["child"] == 0:
        end = time.monotonic() + 30
        while time.monotonic() < end and os.getppid() != 1:
            if flag[0] == 1:
                with torch.no_grad(): kept["out"].copy_(model.right(kept["in"]))
                flag[0] = 2
        os._exit(0)
""",
    ),
    cpp(
        "cpp_more_threads",
        "computes in two threads where one is allowed",
        """
        std::thread other([&] { rows(p, q, k, v, o, 1, 2); });
        rows(p, q, k, v, o, 0, 2);
        other.join();
        """,
        family="more threads",
    ),
]
_less = partial(python, family="less precision or less work")
LESS = [
    _less(
        "bfloat16_inside",
        "computes in bfloat16",
        """
        w, b = self.project.weight.bfloat16(), self.project.bias.bfloat16()
        x = F.linear(x.bfloat16(), w, b)
        for _ in range(8): x = torch.softmax(x, dim=-1) @ w + x
        return x.float()
        """,
    ),
    _less(
        "bfloat16_when_timed",
        "rounds products to bfloat16 when timed only",
        """
        if not timed(): return self.right(x)
        w = self.project.weight.bfloat16()
        x = self.project(x)
        for _ in range(8): x = (torch.softmax(x, dim=-1).bfloat16() @ w).float() + x
        return x
        """,
    ),
    _less(
        "last_step_left_out",
        "leaves the last of eight steps out",
        """
        x = self.project(x)
        for _ in range(7): x = torch.softmax(x, dim=-1) @ self.project.weight + x
        return x
        """,
    ),
    _less(
        "one_softmax",
        "takes the first softmax for all steps",
        """
        x = self.project(x)
        s = torch.softmax(x, dim=-1) @ self.project.weight
        return x + 8 * s
        """,
    ),
    _less(
        "skips_small_weights",
        "leaves out columns whose weights in the softmax are smallest",
        """
        x = self.project(x)
        for _ in range(8):
            s = torch.softmax(x, dim=-1)
            top = s.mean(0).topk(int(s.shape[1] * 0.9)).indices
            x = s[:, top] @ self.project.weight[top] + x
        return x
        """,
    ),
    _less(
        "rounds_weights_to_int8",
        "rounds its weights to eight bits",
        """
        w = self.project.weight
        scale = w.abs().max() / 127
        w = (w / scale).round() * scale
        x = F.linear(x, w, self.project.bias)
        for _ in range(8): x = torch.softmax(x, dim=-1) @ w + x
        return x
        """,
    ),
    _less(
        "few_rows",
        "computes three of four rows, and gives their mean for the others",
        """
        most = x.shape[0] * 3 // 4
        out = self.right(x[:most])
        return torch.cat([out, out.mean(0, keepdim=True).expand(x.shape[0] - most, -1)])
        """,
    ),
    cpp(
        "cpp_last_keys_left_out",
        "leaves the last sixteenth of the keys out",
        """
        attention_problem less = p;
        const int n = p.seq_len, d = p.head_dim, keep = n - n / 16;
        less.seq_len = keep;
        right(p, q, k, v, o);
        for (long h = 0; h < (long)p.batch * p.heads; ++h) {
            less.batch = less.heads = 1;
            right(less, q + h * n * d, k + h * n * d, v + h * n * d, o + h * n * d);
        }
        """,
        family="less precision or less work",
    ),
    cpp(
        "cpp_rows_skipped",
        "computes every second row, and copies it to its neighbour",
        """
        const int n = p.seq_len, d = p.head_dim;
        rows(p, q, k, v, o, 0, 2);
        for (long h = 0; h < (long)p.batch * p.heads; ++h)
            for (int i = 1; i < n; i += 2) std::memcpy(o + (h * n + i) * d, o + (h * n + i - 1) * d, 4 * d);
        """,
        family="less precision or less work",
    ),
]

HOSTILE: list[Candidate] = [
    *LAZY,
    *LAZY_NATIVE,
    *LATE,
    *PATHS,
    *PATHS_NATIVE,
    *SLOWED,
    *SLOWED_NATIVE,
    *MORE,
    *LESS,
]
