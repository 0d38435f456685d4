"""Hostile: what is returned or written to, what is said, and attacks on other processes.

No candidate touches a process but those that it started, and the ones that started it and are this project's."""

from __future__ import annotations

from functools import partial

from tests.candidates.corpus.candidate import Candidate, cpp, python

# -- what is returned, and what is written to ----------------------------------------------------------------------
_returned = partial(python, family="outputs and inputs")
RETURNED = [
    _returned("returns_input", "returns its input", "return x"),
    _returned("returns_zeros", "returns zeros", "return torch.zeros_like(x)"),
    _returned(
        "returns_zeros_timed",
        "returns zeros when timed",
        "return self.right(x) if not timed() else torch.zeros_like(x)",
    ),
    _returned("returns_nan", "returns NaN", "return torch.full_like(x, float('nan'))"),
    _returned(
        "returns_one_row", "returns one row, expanded without memory", "return self.right(x[:1]).expand(x.shape[0], -1)"
    ),
    _returned(
        "returns_huge",
        "returns a view of many gigabytes of one element",
        "return torch.zeros(1).expand(1 << 17, 1 << 17)",
    ),
    _returned("returns_other_type", "returns float64", "return self.right(x).double()"),
    _returned("returns_sparse", "returns a sparse tensor", "return self.right(x).to_sparse()"),
    _returned(
        "writes_output_in_input", "returns its input's memory with the answer in it", "return x.copy_(self.right(x))"
    ),
    _returned(
        "zeroes_input",
        "returns the answer for zeros, and writes them to its input",
        """
        x.zero_()
        if "out" not in kept: kept["out"] = self.right(x)
        return kept["out"]
        """,
    ),
    _returned(
        "easier_input",
        "makes its input constant for whoever computes after it, and answers for that",
        """
        x.fill_(0.5)
        return self.right(x[:1]).expand_as(x).contiguous()
        """,
    ),
    _returned(
        "changes_output_later",
        "returns one buffer, and spoils it at the next call when timed",
        """
        if "out" in kept and timed(): kept["out"].zero_()
        kept["out"] = self.right(x)
        return kept["out"]
        """,
    ),
    _returned(
        "returns_half_written",
        "writes half of an output that held an answer before",
        """
        if not timed() or "out" not in kept: kept["out"] = self.right(x)
        half = x.shape[0] // 2
        kept["out"][:half] = self.right(x[:half])
        return kept["out"]
        """,
    ),
    python(
        "changes_weights",
        "makes its weights zero after its first call, so that nothing is left to compute",
        """
        out = self.right(x)
        if timed():
            with torch.no_grad(): self.project.weight.zero_()
        return out
        """,
        family="outputs and inputs",
    ),
    python(
        "gives_weights_that_lie",
        "tells of other weights than it uses, and lies when it is loaded and cast",
        """
        return self.right(x)
        """,
        family="outputs and inputs",
        init="""
        self.state_dict = lambda *a, **k: {}
        self.to = lambda *a, **k: self
        """,
    ),
    cpp(
        "cpp_writes_inputs",
        "makes the keys zero after it has read them, for whoever reads them next",
        """
        right(p, q, k, v, o);
        std::memset((void*)k, 0, size_of(p));
        """,
        family="outputs and inputs",
    ),
    cpp(
        "cpp_writes_beyond",
        "writes a little beyond its output",
        "right(p, q, k, v, o);\no[size_of(p) / 4] = 1e30f;",
        family="outputs and inputs",
    ),
]

# -- what is said ----------------------------------------------------------------------------------------------------
MARK = "<script>corpus()</script>"
_said = partial(python, family="markup", hidden=MARK)
SAID = [
    _said(
        "markup_in_exception",
        "raises an exception whose type and message are markup",
        f"raise type('{MARK}', (Exception,), {{}})('{MARK}')",
    ),
    _said(
        "markup_in_type",
        "returns an object whose type's name is markup",
        f"return self.right(x).as_subclass(type('{MARK}', (torch.Tensor,), {{}}))",
    ),
    _said(
        "markup_in_log",
        "prints markup and control characters, and dies",
        f"print('{MARK}\\x1b[2J\\r' * 50, flush=True)\nos.abort()",
    ),
    _said(
        "markup_in_links",
        "raises a message with a link and a picture",
        f"raise RuntimeError('{MARK}<img src=x onerror=corpus()>[a](javascript:corpus()) ``` | | --> ]]>')",
    ),
    cpp(
        "cpp_markup_in_names",
        "says markup of its tunables, choice and errors",
        "return 7;",
        family="markup",
        hidden=MARK,
        after=f"""
extern "C" const char* attention_error_string(int) {{ return "{MARK}"; }}
extern "C" const char* attention_tunables(void) {{ return "A={MARK}"; }}
extern "C" const char* attention_choice(const attention_problem*) {{ return "{MARK}"; }}
""",
    ),
    python(
        "shouts",
        "prints a hundred megabytes",
        "if calls == 1:\n    for _ in range(100): print('x' * (1 << 20))\nreturn self.right(x)",
        family="markup",
    ),
]

# -- other processes -------------------------------------------------------------------------------------------------
# Only ancestors whose command line is this project's.
ANCESTORS = r"""
def ancestors():
    found, pid = [], os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file: line = file.read()
            with open(f"/proc/{pid}/stat") as file: parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError: break
        if not any(word in (b"harness", b"worker", b"kernel_matrix") or word.endswith(b"/harness") for word in line.split(b"\0")): break
        found.append(pid); pid = parent
    return found
def maps(pid):
    with open(f"/proc/{pid}/maps") as file:
        for line in file:
            span, rights, *rest = line.split()
            low, high = (int(part, 16) for part in span.split("-"))
            if rights.startswith("rw") and high - low < 1 << 26 and not line.rstrip().endswith(("[vvar]", "[vsyscall]")): yield low, high
"""
_attack = partial(python, family="other processes", alone=True)
ATTACKS = [
    _attack(
        "stops_its_parent",
        "stops the process that started it while it works, and lets it go on",
        """
        targets = ancestors()[:1] if timed() else []
        for pid in targets: os.kill(pid, signal.SIGSTOP)
        try: return self.right(x)
        finally:
            for pid in targets: os.kill(pid, signal.SIGCONT)
        """,
        before=ANCESTORS,
    ),
    _attack(
        "stops_its_parent_for_good",
        "stops the process that started it, and a child lets it go on after five seconds",
        """
        if calls == 1:
            for pid in ancestors()[:1]:
                if os.fork() == 0:
                    os.kill(pid, signal.SIGSTOP); time.sleep(5); os.kill(pid, signal.SIGCONT); os._exit(0)
        return self.right(x)
        """,
        before=ANCESTORS,
    ),
    _attack(
        "interrupts_its_parent",
        "sends the process that started it a signal that Python handles",
        """
        if timed() and not kept:
            kept["done"] = True
            for pid in ancestors()[:1]: os.kill(pid, signal.SIGWINCH)
        return self.right(x)
        """,
        before=ANCESTORS,
    ),
    _attack(
        "writes_parents_memory",
        "looks for times in the memory of what started it, and halves them by /proc/PID/mem",
        """
        if timed() and calls % 50 == 0:
            for pid in ancestors()[:1]:
                try: rewrite(pid)
                except OSError: pass
        return self.right(x)
        """,
        before=ANCESTORS
        + r"""
def rewrite(pid):
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for low, high in list(maps(pid))[:40]:
            try: memory.seek(low); data = memory.read(min(high - low, 1 << 22))
            except OSError: continue
            for match in re.finditer(rb'"correct": false|"status": "wrong"', data):
                new = b'"correct": true ' if match.group().startswith(b'"correct') else b'"status": "ok"   '
                memory.seek(low + match.start()); memory.write(new)
""",
    ),
    _attack(
        "writes_parents_samples",
        "looks for the process's own time in its parent's numbers, and makes them smaller",
        """
        start = time.perf_counter_ns()
        out = self.right(x)
        took_us = (time.perf_counter_ns() - start) / 1000
        if timed() and calls % 100 == 0:
            for pid in ancestors()[:1]:
                try: shrink(pid, took_us)
                except OSError: pass
        return out
        """,
        before=ANCESTORS
        + """
def shrink(pid, us):
    libc = ctypes.CDLL(None, use_errno=True)
    class Span(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
    for low, high in list(maps(pid))[:40]:
        size = min(high - low, 1 << 22)
        buffer = ctypes.create_string_buffer(size)
        here, there = Span(ctypes.addressof(buffer), size), Span(low, size)
        if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) != size: continue
        values = np.frombuffer(buffer, np.float64, size // 8)
        for at in np.flatnonzero((values > us * 0.8) & (values < us * 1.5))[:100]:
            one = ctypes.c_double(values[at] / 2)
            here, there = Span(ctypes.addressof(one), 8), Span(low + 8 * int(at), 8)
            libc.process_vm_writev(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
""",
    ),
    _attack(
        "traces_its_parent",
        "attaches to the process that started it as a debugger, which stops it, and lets go",
        """
        if timed() and calls % 20 == 0:
            libc = ctypes.CDLL(None)
            for pid in ancestors()[:1]:
                if libc.ptrace(16, pid, None, None) == 0:
                    os.waitpid(pid, 0x40000000); libc.ptrace(17, pid, None, None)
        return self.right(x)
        """,
        before=ANCESTORS,
    ),
    _attack(
        "limits_its_parent",
        "lowers limits of the process that started it, on files that it may open",
        """
        if calls == 1:
            import resource
            for pid in ancestors()[:1]:
                try: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
                except OSError: pass
        return self.right(x)
        """,
        before=ANCESTORS,
    ),
    _attack(
        "takes_parents_files",
        "opens the files that its parent has open, and writes times into them",
        """
        if timed() and calls % 50 == 0:
            for pid in ancestors()[:1]:
                for fd in range(3, 32):
                    try:
                        path = f"/proc/{pid}/fd/{fd}"
                        if os.readlink(path).startswith("pipe:"):
                            handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK); os.write(handle, b'{"samples_us": [1.0]}\\n'); os.close(handle)
                    except OSError: pass
        return self.right(x)
        """,
        before=ANCESTORS,
    ),
    _attack(
        "writes_own_memory",
        "changes numbers in its own process's memory: doubles near its own time are halved",
        """
        start = time.perf_counter_ns()
        out = self.right(x)
        us = (time.perf_counter_ns() - start) / 1000
        if timed() and calls % 100 == 0:
            for value in gc.get_objects():
                if type(value) is list and len(value) > 3 and type(value[0]) is float and id(value) not in kept:
                    near = [v for v in value if type(v) is float and us * 0.7 < v < us * 1.5]
                    if len(near) * 2 > len(value):
                        value[:] = [v / 2 if type(v) is float else v for v in value]
                        kept[id(value)] = value
        return out
        """,
        alone=False,
    ),
    _attack(
        "closes_files",
        "closes every file that it inherited",
        """
        if timed() and not kept:
            kept["done"] = True
            os.closerange(3, 64)
        return self.right(x)
        """,
        alone=False,
    ),
    _attack(
        "ignores_signals",
        "ignores every signal, and sleeps at the end of its process",
        "return self.right(x)",
        before="""
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
atexit.register(time.sleep, 3)
""",
    ),
    _attack(
        "raises_from_signal",
        "lets an alarm raise an exception in whoever runs it",
        """
        if timed():
            signal.signal(signal.SIGALRM, stop)
            signal.setitimer(signal.ITIMER_REAL, 0.002)
        return self.right(x)
        """,
        alone=False,
        before="""
def stop(*_): raise StopIteration("enough")
""",
    ),
    _attack(
        "ends_loop_early",
        "makes whoever measures it stop at the first samples, by a flag in its variables",
        """
        frame = sys._getframe(1)
        while frame is not None:
            for value in frame.f_locals.values():
                if hasattr(value, "deadline"):
                    try: value.deadline = 0.0
                    except Exception: pass
                if hasattr(value, "steps") and type(value.steps) is list: value.steps[:] = value.steps[-1:]
                if hasattr(value, "looks"):
                    try: value.looks, value.wanted = 0, False
                    except Exception: pass
            frame = frame.f_back
        if not timed(): return self.right(x)
        if "out" not in kept or calls % 400 == 0: kept["out"] = self.right(x)
        return kept["out"]
        """,
        alone=False,
    ),
    _attack(
        "unpickles_itself",
        "has methods that run code when it is pickled, copied or saved",
        "return self.right(x)",
        alone=False,
        before="""
class Bomb:
    def __reduce__(self): return os._exit, (0,)
    def __deepcopy__(self, _): os._exit(0)
""",
        init="self.bomb = Bomb()",
    ),
]

HOSTILE: list[Candidate] = [*RETURNED, *SAID, *ATTACKS]
