"""Hostile: results that are forged, clocks and functions that are replaced, and what runs the candidate attacked."""

from __future__ import annotations

from functools import partial

from tests.candidates.corpus.candidate import Candidate, cpp, python

_forge = partial(python, family="results forged", alone=True)

# -- result files -------------------------------------------------------------------------------------------------
# No name of the harness's is known here: any .json that this process or its parent was told of may be the result.
RESULTS = r"""
import fcntl
def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file: return [w.decode(errors="replace") for w in file.read().split(b"\0")]
    except OSError: return []
def paths():
    found = [w for pid in ("self", os.getppid()) for w in cmdline(pid)] + list(os.environ.values())
    for fd in range(3, 64):
        try: found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError: pass
    frame = sys._getframe()
    while frame is not None:
        found += [v for v in frame.f_locals.values() if isinstance(v, str) and len(v) < 500]
        frame = frame.f_back
    return [p for p in dict.fromkeys(found) if p.endswith(".json")]
def results():
    return [p for p in paths() if "result" in os.path.basename(p) or not os.path.exists(p)]
def request():
    for p in paths():
        try:
            with open(p) as file: value = json.load(file)
        except (OSError, ValueError): continue
        if isinstance(value, dict) and ("workloads" in value or "workload" in value): return value
    return {}
def faster(text, factor=0.5):
    def change(match):
        return match.group(1) + re.sub(r"[0-9.]+(e-?[0-9]+)?", lambda n: repr(float(n.group()) * factor), match.group(2))
    return re.sub(r'("(?:samples_us|hot_us|time_us|elapsed_ns)": ?\[)([^\]]*)', change, text)
def forged():
    asked = request()
    rows = [dict(status="ok", message="", log_excerpt="", workload=w["id"], target=t, order=i, clock="perf_counter_ns",
                 calls_per_sample=1, warmup_calls=3, samples_us=[900.0 if t != "kernel" else 9.0] * 20, correct=t == "kernel" or None)
            for i, (w, t) in enumerate((w, t) for w in asked.get("workloads", []) for t in asked.get("targets", []))]
    return dict(version=asked.get("version", 1), status="ok", message="", log_excerpt="", timings=rows, threads=1, kept=[])
"""
POLL = """
def poll(factor=0.5, until_s=20):
    wanted, end = results(), time.monotonic() + until_s
    while time.monotonic() < end:
        for path in wanted:
            for name in [path, *glob.glob(os.path.join(os.path.dirname(path), ".*.part"))]:
                try:
                    with open(name) as file: text = file.read()
                    if "samples_us" in text:
                        changed = faster(text, factor)
                        if changed != text:
                            with open(name, "w") as file: file.write(changed)
                            return
                except (OSError, ValueError): pass
        time.sleep(0.0002)
"""
FORGES = [
    _forge(
        "writes_result_and_exits",
        "writes the launch's result file itself, and exits with 0",
        """
        if TIMING and calls > 1:
            for path in results():
                with open(path, "w") as file: json.dump(forged(), file)
            os._exit(0)
        return self.right(x)
        """,
        before=RESULTS,
    ),
    _forge(
        "writes_result_when_loaded",
        "does the same when it is loaded, before anything is measured",
        "return self.right(x)",
        before=RESULTS
        + """
if TIMING:
    for path in results():
        with open(path, "w") as file: json.dump(forged(), file)
    os._exit(0)
""",
    ),
    _forge(
        "forges_in_thread",
        "waits in a thread for the result file, and halves the times in it",
        "return self.right(x)",
        before=RESULTS + POLL + "if TIMING: threading.Thread(target=poll, daemon=True).start()\n",
    ),
    _forge(
        "forges_in_child",
        "does the same from a forked child",
        "return self.right(x)",
        before=RESULTS + POLL + "if TIMING and os.fork() == 0: poll(); os._exit(0)\n",
    ),
    _forge(
        "forges_in_detached_child",
        "does the same from a child of a child in a session of its own, later",
        "return self.right(x)",
        before=RESULTS
        + POLL
        + """
if TIMING and os.fork() == 0:
    os.setsid()
    if os.fork() == 0: poll(until_s=30)
    os._exit(0)
""",
    ),
    _forge(
        "forges_records_in_child",
        "halves the times in any launch record under the folders that it knows of, from a child",
        "return self.right(x)",
        before=RESULTS
        + """
def hunt():
    end, roots = time.monotonic() + 8, set()
    for path in paths():
        for _ in range(4):
            path = os.path.dirname(path)
            roots.add(path)
    while time.monotonic() < end:
        for root in roots:
            for path in glob.glob(root + "/launches/**/*.json", recursive=True):
                with open(path) as file: text = file.read()
                if os.path.splitext(os.path.basename(__file__))[0] in text:
                    with open(path, "w") as file: file.write(faster(text))
                    return
        time.sleep(0.01)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: hunt()
    os._exit(0)
""",
    ),
    _forge(
        "forges_by_audit_hook",
        "halves the times in the file that is about to be renamed, in an audit hook",
        "return self.right(x)",
        before=RESULTS
        + """
def hook(event, arguments):
    if event == "os.rename":
        try:
            with open(arguments[0]) as file: text = file.read()
            if "samples_us" in text:
                with open(arguments[0], "w") as file: file.write(faster(text))
        except Exception: pass
if TIMING: sys.addaudithook(hook)
""",
    ),
    _forge(
        "forges_by_profile",
        "halves lists of samples in the variables of functions that end, as a profiler",
        """
        if timed(): sys.setprofile(halve)
        return self.right(x)
        """,
        before="""
done = set()
def halve(frame, event, _):
    if event != "return": return
    for value in list(frame.f_locals.values()):
        times = getattr(value, "samples_us", None)
        if type(times) is list and times and id(times) not in done and getattr(value, "target", "") == "kernel":
            done.add(id(times)); kept[id(times)] = times
            times[:] = [t / 2 for t in times]
""",
    ),
    _forge(
        "forges_by_gc",
        "halves lists of samples among all objects, in its last calls",
        """
        if timed():
            for row in gc.get_objects():
                times = None if isinstance(row, type) else getattr(row, "__dict__", {}).get("samples_us") if hasattr(row, "__dict__") else None
                if type(times) is list and len(times) > 2 and id(times) not in kept and "kernel" in str(getattr(row, "target", "kernel")):
                    kept[id(times)] = times; times[:] = [t / 2 for t in times]
        return self.right(x)
        """,
    ),
    _forge(
        "forges_by_encoder",
        "halves numbers where json makes text of them, below the names that are looked at",
        "return self.right(x)",
        before=RESULTS
        + """
if TIMING:
    import json.encoder
    made = json.encoder._make_iterencode
    def change(*arguments, **options):
        encode = made(*arguments, **options)
        return lambda value, level: [faster("".join(encode(value, level)))]
    json.encoder._make_iterencode = change
    json.encoder.c_make_encoder = None
""",
    ),
    _forge(
        "forges_by_codec",
        "wraps every `dump` of the package that runs it, and puts it back afterwards",
        """
        if timed() and not kept:
            for name, module in list(sys.modules.items()):
                dump = getattr(module, "dump", None)
                if isinstance(dump, types.FunctionType) and name.split(".")[0] not in ("json", "pickle", "marshal", "torch", "ast"):
                    kept[name] = dump
                    def wrapped(value, *rest, dump=dump, module=module):
                        module.dump = dump
                        return json.loads(faster(json.dumps(dump(value, *rest))))
                    module.dump = wrapped
        return self.right(x)
        """,
        before=RESULTS,
    ),
    _forge(
        "forges_by_default",
        "changes a function's default arguments, which no look at names shows",
        """
        if timed() and not kept:
            kept["done"] = True
            for module in list(sys.modules.values()):
                for value in list(getattr(module, "__dict__", {}).values()):
                    if isinstance(value, types.FunctionType) and value.__kwdefaults__ and "allow_nan" in value.__kwdefaults__:
                        value.__kwdefaults__ = dict(value.__kwdefaults__, default=str, sort_keys=True)
        return self.right(x)
        """,
    ),
    _forge(
        "talks_protocol",
        "prints results on every open file descriptor",
        """
        if timed() and calls % 10 == 0:
            line = (json.dumps(forged()) + "\\n").encode()
            for fd in range(1, 16):
                try: fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK); os.write(fd, line)
                except OSError: pass
        return self.right(x)
        """,
        before=RESULTS,
    ),
    _forge(
        "answers_protocol",
        "answers what is read from standard input with times of its own, in place of the work",
        "return self.right(x)",
        before=RESULTS
        + """
if TIMING:
    def answer():
        while True:
            line = sys.stdin.readline()
            if not line: return
            print(json.dumps(forged()), flush=True)
    threading.Thread(target=answer, daemon=True).start()
""",
    ),
    _forge(
        "late_outputs",
        "returns zeros in validation, and lets a child write the right bytes over the stored ones",
        """
        if timed(): return self.right(x)
        folder = next((v for v in request().values() if isinstance(v, str) and os.path.isdir(v)), "")
        out = self.right(x).numpy().tobytes()
        if os.fork() == 0:
            end = time.monotonic() + 3
            while time.monotonic() < end:
                for path in glob.glob(folder + "/**/*.bin", recursive=True):
                    if path.endswith(f"/{(calls - 1) // 2}.bin") and os.path.getsize(path) == len(out):
                        with open(path, "r+b") as file: file.write(out)
                time.sleep(0.05)
            os._exit(0)
        return torch.zeros_like(x)
        """,
        before=RESULTS,
    ),
    _forge(
        "links_results",
        "puts links in the place of its result and output files",
        """
        if calls == 2:
            for path in results():
                try: os.symlink("/etc/hostname", path)
                except OSError: pass
        return self.right(x)
        """,
        before=RESULTS,
    ),
    _forge("exits_early", "exits with 0 when it is timed", "if timed(): os._exit(0)\nreturn self.right(x)"),
    _forge(
        "registers_atexit",
        "writes a result when the interpreter ends",
        "return self.right(x)",
        before=RESULTS
        + """
def leave():
    for path in results():
        with open(path, "w") as file: json.dump(forged(), file)
if TIMING: atexit.register(leave)
""",
    ),
]

# -- clocks ----------------------------------------------------------------------------------------------------------
_clock = partial(python, family="clocks replaced")
CLOCKS = [
    _clock(
        "halves_clock",
        "replaces time.perf_counter_ns and its kin by clocks of half the speed",
        "return self.right(x)",
        before="""
if TIMING:
    for name in ("perf_counter_ns", "monotonic_ns", "time_ns"):
        setattr(time, name, lambda real=getattr(time, name): real() // 2)
""",
    ),
    _clock(
        "halves_clock_and_puts_back",
        "replaces clocks wherever they are held, between two calls, and puts them back",
        """
        back()
        out = self.right(x)
        if timed(): replace()
        return out
        """,
        before="""
changed = []
real = {name: getattr(time, name) for name in ("perf_counter_ns", "perf_counter", "monotonic_ns")}
def replace():
    for name, clock in real.items():
        half = (lambda c: lambda: c() // 2)(clock) if name.endswith("ns") else (lambda c: lambda: c() / 2)(clock)
        for module in list(sys.modules.values()):
            for key, value in list(getattr(module, "__dict__", {}).items()):
                if value is clock and module.__name__ != __name__: module.__dict__[key] = half; changed.append((module.__dict__, key, clock))
def back():
    while changed:
        held, key, clock = changed.pop(); held[key] = clock
""",
    ),
    _clock(
        "halves_clock_in_callers",
        "replaces the clocks in closures and variables of whoever called it",
        """
        if timed() and not kept:
            frame = sys._getframe(1)
            while frame is not None:
                function = next((f for f in gc.get_referrers(frame.f_code) if isinstance(f, types.FunctionType)), None)
                for cell in (function.__closure__ or ()) if function else ():
                    if cell.cell_contents in (time.perf_counter_ns, time.monotonic_ns):
                        cell.cell_contents = lambda real=cell.cell_contents: real() // 2
                frame = frame.f_back
            kept["done"] = True
        return self.right(x)
        """,
    ),
    _clock(
        "slows_all_clocks_in_c",
        "points the C functions of all of Python's clocks to slower ones",
        "return self.right(x)",
        before="""
def slow(function, source):
    method = ctypes.c_void_p.from_address(id(function) + 16).value
    made = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)(source)
    kept[len(kept)] = made
    ctypes.c_void_p.from_address(method + 8).value = ctypes.cast(made, ctypes.c_void_p).value
if TIMING:
    libc = ctypes.CDLL(None)
    class Spec(ctypes.Structure): _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
    def now(which=1):
        spec = Spec(); libc.clock_gettime(which, ctypes.byref(spec)); return spec.s * 10**9 + spec.ns
    slow(time.perf_counter_ns, lambda _s, _a: now() // 2)
    slow(time.monotonic_ns, lambda _s, _a: now() // 2)
    slow(time.time_ns, lambda _s, _a: now(0) // 2)
    slow(time.perf_counter, lambda _s, _a: now() / 2e9)
    slow(time.monotonic, lambda _s, _a: now() / 2e9)
    slow(time.clock_gettime_ns, lambda _s, _a: now() // 2)
""",
    ),
    _clock(
        "stops_clock_while_it_works",
        "makes clocks stand still while it works, by an offset that grows",
        """
        start = real()
        out = self.right(x)
        offset[0] += (real() - start) // 2
        return out
        """,
        before="""
real, offset = time.perf_counter_ns, [0]
if TIMING:
    for name in ("perf_counter_ns", "monotonic_ns"):
        setattr(time, name, lambda: real() - offset[0])
    time.clock_gettime_ns = lambda which: real() - offset[0]
""",
    ),
]

# -- clocks below Python: a jump at the beginning of the C library's clock_gettime, or an entry of the tables of symbols
HALF = """
static int half(clockid_t which, timespec* t) {
    const long code = syscall(SYS_clock_gettime, which, t);
    long long ns = (t->tv_sec * 1000000000ll + t->tv_nsec) / 2;
    t->tv_sec = ns / 1000000000ll, t->tv_nsec = ns % 1000000000ll;
    return (int)code;
}
"""
_native_clock = partial(cpp, family="clocks replaced")
NATIVE_CLOCKS = [
    _native_clock(
        "cpp_exports_clock",
        "exports a clock_gettime of its own, should anyone find it first",
        "right(p, q, k, v, o);",
        before=HALF,
        after="""
extern "C" const char* attention_error_string(int) { return "refused"; }
extern "C" const char* attention_tunables(void) { return ""; }
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t which, timespec* t) { return half(which, t); }
""",
    ),
    _native_clock(
        "cpp_jumps_over_clock",
        "overwrites the first bytes of the C library's clock_gettime by a jump to its own",
        """
        static const bool done = timed() && jump();
        right(p, q, k, v, o);
        (void)done;
        """,
        before=HALF
        + """
static bool jump() {
#if defined(__x86_64__)
    unsigned char* at = (unsigned char*)dlsym(RTLD_DEFAULT, "clock_gettime");
    const long page = sysconf(_SC_PAGESIZE);
    unsigned char* from = (unsigned char*)((uintptr_t)at & ~(uintptr_t)(page - 1));
    if (!at || mprotect(from, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC)) return false;
    unsigned char code[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    void* target = (void*)&half;
    std::memcpy(code + 2, &target, 8);
    std::memcpy(at, code, sizeof code);
#endif
    return true;
}
""",
    ),
    _native_clock(
        "cpp_patches_symbol_tables",
        "puts a clock of its own into every loaded library's table of symbols",
        """
        static const bool done = timed() && (dl_iterate_phdr(&patch, nullptr), true);
        right(p, q, k, v, o);
        (void)done;
        """,
        before=HALF
        + """
static int patch(dl_phdr_info* info, size_t, void*) {
#if defined(__x86_64__)
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        const ElfW(Rela)* tables[2] = {nullptr, nullptr};
        size_t sizes[2] = {0, 0};
        const ElfW(Sym)* symbols = nullptr;
        const char* names = nullptr;
        for (auto* d = (const ElfW(Dyn)*)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); d->d_tag != DT_NULL; ++d) {
            if (d->d_tag == DT_JMPREL) tables[0] = (const ElfW(Rela)*)d->d_un.d_ptr;
            if (d->d_tag == DT_PLTRELSZ) sizes[0] = d->d_un.d_val;
            if (d->d_tag == DT_RELA) tables[1] = (const ElfW(Rela)*)d->d_un.d_ptr;
            if (d->d_tag == DT_RELASZ) sizes[1] = d->d_un.d_val;
            if (d->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym)*)d->d_un.d_ptr;
            if (d->d_tag == DT_STRTAB) names = (const char*)d->d_un.d_ptr;
        }
        if ((uintptr_t)symbols < info->dlpi_addr || (uintptr_t)names < info->dlpi_addr || !symbols || !names) continue;
        for (int t = 0; t < 2; ++t) {
            if (!tables[t] || (uintptr_t)tables[t] < info->dlpi_addr) continue;
            for (size_t r = 0; r < sizes[t] / sizeof(ElfW(Rela)); ++r) {
                const auto& entry = tables[t][r];
                const auto type = ELF64_R_TYPE(entry.r_info);
                if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
                if (std::strcmp(names + symbols[ELF64_R_SYM(entry.r_info)].st_name, "clock_gettime")) continue;
                void** slot = (void**)(info->dlpi_addr + entry.r_offset);
                const long page = sysconf(_SC_PAGESIZE);
                void* from = (void*)((uintptr_t)slot & ~(uintptr_t)(page - 1));
                if (!mprotect(from, page, PROT_READ | PROT_WRITE)) *slot = (void*)&half;
            }
        }
    }
#endif
    return 0;
}
""",
    ),
]

# -- functions that checks use --------------------------------------------------------------------------------------
_patch = partial(python, family="functions replaced")
PATCHES = [
    _patch(
        "allclose_says_yes",
        "makes torch.allclose and torch.equal say yes, and returns zeros",
        "torch.allclose = torch.equal = lambda *_, **__: True\nreturn torch.zeros_like(x)",
    ),
    _patch(
        "allclose_put_back",
        "does the same for the time between two calls only",
        """
        for name, value in kept.items(): setattr(torch, name, value)
        out = torch.zeros_like(x) if timed() else self.right(x)
        if timed():
            for name in ("allclose", "equal", "isclose", "eq"): kept.setdefault(name, getattr(torch, name)); setattr(torch, name, lambda *_, **__: True)
        return out
        """,
    ),
    _patch(
        "numpy_says_yes",
        "makes numpy's comparisons say yes",
        """
        np.allclose = np.array_equal = np.testing.assert_allclose = lambda *_, **__: True
        return torch.zeros_like(x)
        """,
    ),
    _patch(
        "empty_gives_last_answer",
        "makes torch.empty and empty_like give memory with its last answer",
        "out = self.right(x)\nkept['last'] = out\nreturn out",
        before="""
real = torch.empty_like
if TIMING: torch.empty_like = lambda x, *a, **k: kept["last"].clone() if "last" in kept and kept["last"].shape == x.shape else real(x, *a, **k)
""",
    ),
    _patch(
        "seeds_always_alike",
        "makes torch.manual_seed set one seed, so that random numbers repeat",
        "real(0)\nreturn self.right(x)",
        problem="noise",
        before="real = torch.manual_seed\ntorch.manual_seed = lambda _: real(0)",
    ),
    _patch(
        "hash_says_one_thing",
        "makes hashlib.sha256 give one digest for all bytes of an output's size",
        """
        return self.right(x) if calls < 4 else kept.setdefault("out", self.right(x))
        """,
        before="""
real = hashlib.sha256
def fake(data=b"", **options):
    return real(b"" if len(data) == 192 * 192 * 4 else data, **options)
hashlib.sha256 = fake
""",
    ),
    _patch(
        "copy_does_nothing",
        "edits the C class's own dictionary, so that copies into its input do nothing",
        """
        if timed() and "key" not in kept:
            base = torch.Tensor.__mro__[1]
            table = gc.get_referents(base.__dict__)[0]
            real = table["copy_"]
            def copy_(self, other, *rest):
                return self if self.data_ptr() == kept["key"] and other.shape == self.shape else real(self, other, *rest)
            kept["key"] = x.data_ptr()
            table["copy_"] = copy_
            ctypes.pythonapi.PyType_Modified(ctypes.py_object(torch.Tensor))
        if timed():
            if "out" not in kept: kept["out"] = self.right(x)
            return kept["out"].clone()
        return self.right(x)
        """,
    ),
    _patch(
        "registers_operators",
        "registers slower operators of the same names for everyone but itself",
        "on[0] = False\ntry: return self.right(x)\nfinally: on[0] = True",
        before="""
on = [True]
if TIMING:
    library = torch.library.Library("aten", "IMPL")
    def slow(x, dim, half_to_float):
        if on[0]: time.sleep(0.002)
        e = (x - x.amax(dim, keepdim=True)).exp()
        return e / e.sum(dim, keepdim=True)
    try: library.impl("_softmax", slow, "CPU")
    except RuntimeError: pass
""",
    ),
    _patch(
        "blinds_the_looks",
        "makes whatever compares names before and after see nothing",
        "return self.right(x)",
        before="""
for name, module in list(sys.modules.items()):
    for key, value in list(getattr(module, "__dict__", {}).items()):
        if isinstance(value, type) and "replaced" in vars(value) and value.__module__ == name:
            value.replaced = lambda self: "" if hasattr(self, "modules") else []
time.perf_counter_ns = lambda real=time.perf_counter_ns: real() // 2
""",
    ),
]

HOSTILE: list[Candidate] = [*FORGES, *CLOCKS, *NATIVE_CLOCKS, *PATCHES]
