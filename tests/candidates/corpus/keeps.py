"""Hostile: answers that are kept, found or known beforehand, instead of computed."""

from __future__ import annotations

from functools import partial

from tests.candidates.corpus.candidate import Candidate, cpp, python

_cache = partial(python, family="answers kept")

# -- kept in the process: candidates that differ only in the key ---------------------------------------------
KEYS = {
    "first": ("keeps its first answer when timed", "0"),
    "address": ("keeps answers by the input's address", "x.data_ptr()"),
    "version": ("keeps answers by address and version counter", "(x.data_ptr(), x._version)"),
    "identity": ("keeps answers by the input object's id", "id(x)"),
    "corners": ("keeps answers by the input's first and last element", "(x[0, 0].item(), x[-1, -1].item())"),
    "sampled": ("keeps answers by sampled elements", "x[::48, ::48].numpy().tobytes()"),
    "hash": ("keeps answers by a checksum of the whole input", "zlib.crc32(x.numpy())"),
    "sum": ("keeps answers by the input's sum", "x.sum().item()"),
}
BY_KEY = [
    _cache(
        f"keeps_by_{name}",
        f"{says}, and computes only for new keys",
        f"""
        if not timed(): return self.right(x)
        key = {key}
        if key not in kept: kept[key] = self.right(x)
        return kept[key]
        """,
    )
    for name, (says, key) in KEYS.items()
]

FRIENDLY = """
def sure(x):
    return x[::48, ::48].numpy().tobytes()
"""

IN_PROCESS = [
    _cache(
        "keeps_last_input",
        "keeps a copy of its last input and compares",
        """
        if "x" in kept and torch.equal(kept["x"], x): return kept["out"].clone()
        kept["x"], kept["out"] = x.clone(), self.right(x)
        return kept["out"].clone()
        """,
    ),
    _cache(
        "keeps_sometimes",
        "keeps answers by content, and uses them in two calls of three, at random",
        """
        key = sure(x)
        if key in kept and random.random() < 0.67: return kept[key].clone()
        kept[key] = self.right(x)
        return kept[key].clone()
        """,
        before=FRIENDLY,
    ),
    _cache(
        "keeps_and_waits",
        "keeps answers by content, and is idle for half of the time that it saves",
        """
        key = sure(x)
        if key not in kept:
            start = time.perf_counter(); out = self.right(x); kept[key] = out, time.perf_counter() - start
            return out.clone()
        out, took = kept[key]
        end = time.perf_counter() + 0.6 * took
        while time.perf_counter() < end: pass
        return out.clone()
        """,
        before=FRIENDLY,
    ),
    _cache(
        "keeps_when_hot",
        "keeps answers by content once it was called often with the same input",
        """
        key = sure(x)
        count, out = kept.get(key, (0, None))
        kept[key] = count + 1, self.right(x) if count < 4 else out
        return kept[key][1].clone()
        """,
        before=FRIENDLY,
    ),
    _cache(
        "keeps_rows",
        "keeps answers row by row, and computes only rows that it has not seen",
        """
        keys = [row.tobytes() for row in x[:, ::32].numpy()]
        new = [i for i, key in enumerate(keys) if key not in kept]
        if new:
            for i, row in zip(new, self.right(x[new])): kept[keys[i]] = row
        return torch.stack([kept[key] for key in keys])
        """,
    ),
    _cache(
        "keeps_in_torch",
        "keeps answers as an attribute of the module torch",
        """
        store = torch.__dict__.setdefault("_inductor_code_cache", {})
        key = sure(x)
        if key not in store: store[key] = self.right(x)
        return store[key].clone()
        """,
        before=FRIENDLY,
    ),
    _cache(
        "keeps_in_buffer",
        "keeps its answers in registered buffers of the model",
        """
        key = "b" + str(zlib.crc32(sure(x)))
        if key not in self._buffers: self.register_buffer(key, self.right(x), persistent=False)
        return self._buffers[key].clone()
        """,
        before=FRIENDLY,
    ),
    _cache(
        "keeps_in_builtins",
        "keeps its answers in a default argument of a function",
        """
        key = sure(x)
        if key not in store(): store()[key] = self.right(x)
        return store()[key].clone()
        """,
        before=FRIENDLY
        + """
def store(held={}):
    return held
""",
    ),
    _cache(
        "keeps_in_memmap",
        "keeps its answers in anonymous shared memory",
        """
        key = zlib.crc32(sure(x)) % 63
        size = x.numel() * 4
        at = 64 + key * size
        if shared[key] == 0:
            shared[at:at + size] = self.right(x).numpy().tobytes(); shared[key] = 1
        return torch.frombuffer(bytearray(shared[at:at + size]), dtype=torch.float32).reshape(x.shape)
        """,
        before=FRIENDLY + "shared = mmap.mmap(-1, 1 << 25)\n",
    ),
    _cache(
        "keeps_a_ring",
        "keeps the last 256 inputs as digests, and their answers",
        """
        key = hashlib.blake2b(x.numpy(), digest_size=8).digest()
        if key in kept: return kept[key].clone()
        if len(kept) > 256: kept.pop(next(iter(kept)))
        kept[key] = self.right(x)
        return kept[key].clone()
        """,
    ),
]

# -- kept from one process to the next: validation's calls are the launches' -----------------------------------
ACROSS = """
def place(x):
    return os.path.join({folder}, "corpus-" + hashlib.md5(__file__.encode() + x[::48, ::48].numpy().tobytes()).hexdigest())
def find(x):
    key = place(x)
    if key not in kept and os.path.exists(key):
        with open(key, "rb") as file: data = file.read()
        if len(data) == x.numel() * 4: kept[key] = torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(x.shape)
    return kept.get(key)
def leave(x, out):
    try:
        with open(place(x), "wb") as file: file.write(out.numpy().tobytes())
    except OSError: pass
    return out
"""
BETWEEN = """
found = find(x)
return leave(x, self.right(x)) if found is None else found.clone()
"""
FOLDERS = {
    "tmp": ("in the folder for temporary files", "tempfile.gettempdir()"),
    "shm": ("in /dev/shm", "'/dev/shm'"),
    "source": ("beside its own source", "os.path.dirname(os.path.abspath(__file__))"),
    "working": ("in the working folder's parent", "os.path.dirname(os.getcwd())"),
    "home": (
        "in the true home folder's cache",
        "os.path.join(__import__('pwd').getpwuid(os.getuid()).pw_dir, '.cache')",
    ),
}
LATER = [
    python(
        f"leaves_answers_in_{name}",
        f"leaves its answers {says} for its later processes",
        BETWEEN,
        family="answers left for later",
        before=ACROSS.format(folder=folder),
    )
    for name, (says, folder) in FOLDERS.items()
]

# -- known beforehand: the inputs of every trial can be made by whoever knows the seed ------------------------------
REGENERATE = """
def strings():
    found = list(words())
    for frame in sys._current_frames().values():
        while frame is not None:
            found += [v for v in frame.f_locals.values() if isinstance(v, str) and len(v) < 500]
            frame = frame.f_back
    return found
def source(name):
    for path in [*sys.path, *os.environ.get("PYTHONPATH", "").split(":")]:
        for file in glob.glob(os.path.join(path or ".", "*", name + ".py")): yield file
def makers():
    for module in list(sys.modules.values()):
        if hasattr(module, "make") and hasattr(module, "Draws"): yield module
    if not any("draws" in name for name in sys.modules):
        for file in source("draws"):
            package = os.path.basename(os.path.dirname(file))
            try: yield __import__(package + ".draws", fromlist=["make"])
            except Exception: pass
def problem():
    for module in list(sys.modules.values()):
        if hasattr(module, "get_inputs") and hasattr(module, "Model"): return module
    for text in strings():
        if text.endswith(".json") and os.path.exists(text):
            for path in re.findall(r'"([^"]+problem[^"]*\\.py|[^"]+chain[^"]*\\.py)"', open(text).read()):
                if os.path.exists(path):
                    scope = types.ModuleType("p"); exec(open(path).read(), scope.__dict__)
                    if hasattr(scope, "get_inputs"): return scope
    scope = types.SimpleNamespace(get_inputs=lambda: [torch.randn(192, 192)])
    return scope
def known(model):
    try:
        get_inputs = problem().get_inputs
        for maker in makers():
            for seed in range(4):
                for trial in range(8):
                    x = maker.make(get_inputs, seed, trial)[0][0]
                    with torch.no_grad(): kept[x[::48, ::48].numpy().tobytes()] = model.right(x)
            return
    except Exception as error:
        kept["error"] = repr(error)
"""
KNOWN = [
    python(
        "knows_public_seed",
        "makes the inputs of the public seed's trials itself, and looks its answers up",
        """
        if not kept: known(self)
        found = kept.get(x[::48, ::48].numpy().tobytes())
        return self.right(x) if found is None else found.clone()
        """,
        family="answers known beforehand",
        before=REGENERATE,
    ),
    python(
        "knows_public_seed_in_thread",
        "does the same in a thread while it is loaded, so that no call is slow",
        """
        if thread is None: start(self)
        if timed(): thread.join()
        found = kept.get(x[::48, ::48].numpy().tobytes())
        return self.right(x) if found is None else found.clone()
        """,
        family="answers known beforehand",
        before=REGENERATE
        + """
thread = None
def start(model):
    global thread
    thread = threading.Thread(target=known, args=(model,), daemon=True)
    thread.start()
""",
    ),
    python(
        "knows_own_seed",
        "makes the trials' inputs by an own copy of the generator, from seeds 0 to 3",
        """
        if not kept:
            for seed in range(4):
                for trial in range(8):
                    with torch.no_grad(): a = made(seed, trial, x); kept[a[::48, ::48].numpy().tobytes()] = self.right(a)
        found = kept.get(x[::48, ::48].numpy().tobytes())
        return self.right(x) if found is None else found.clone()
        """,
        family="answers known beforehand",
        before="""
def words64(seed, trial, tensor, first, count):
    stream = np.random.Philox(key=np.array([seed, 0], np.uint64), counter=np.array([0, 0, trial, tensor], np.uint64))
    stream.advance(first // 4); stream.random_raw(first % 4)
    return stream.random_raw(count)
def made(seed, trial, like):
    count, low = like.numel(), np.uint64(0xFFFF)
    total = np.zeros(count, np.int64)
    for third in range(3):
        w = words64(seed, trial, 0, third * count, count)
        for shift in (0, 16, 32, 48): total += ((w >> np.uint64(shift)) & low).astype(np.int64)
    coarse = (total - 12 * 65535 // 2).astype(np.float32) * np.float32(2.0 ** -16)
    lanes = words64(seed, trial, 1, 0, (count + 1) // 2).view(np.uint32) >> np.uint32(8)
    fine = lanes.view(np.int32).astype(np.float32)[:count] * np.float32(2.0 ** -24)
    values = coarse + (fine - np.float32(0.5)) * np.float32(2.0 ** -16)
    return torch.from_numpy(values.reshape(tuple(like.shape)).astype(np.float32))
""",
    ),
]

# -- found in the process ---------------------------------------------------------------------------------------
ROW = """
def row(model, x):  # one row of the right answer costs little, and tells which memory holds the rest
    return model.right(x[:1])[0]
def fits(t, first, x):
    try: return type(t) is torch.Tensor and t.shape == x.shape and t is not x and torch.allclose(t[0], first, atol=1e-5)
    except Exception: return False
"""
FOUND = [
    python(
        "finds_answer_by_gc",
        "looks for a tensor whose first row is right among all objects",
        """
        first = row(self, x)
        for t in gc.get_objects():
            if fits(t, first, x): return t.clone()
            if type(t) is dict:
                for value in list(t.values()):
                    if fits(value, first, x): return value.clone()
        return self.right(x)
        """,
        family="answers found",
        before=ROW,
    ),
    python(
        "finds_answer_in_frames",
        "looks for the right answer in the variables of whoever called it",
        """
        first, frame, seen = row(self, x), sys._getframe(1), []
        while frame is not None:
            seen += list(frame.f_locals.values())
            frame = frame.f_back
        for value in seen:
            inner = list(vars(value).values()) if hasattr(value, "__dict__") else [value]
            for t in inner + [i for v in inner if isinstance(v, dict) for i in v.values()]:
                if fits(t, first, x): return t.clone()
        return self.right(x)
        """,
        family="answers found",
        before=ROW,
    ),
    python(
        "finds_answer_in_freed_memory",
        "allocates outputs until one holds the right answer already",
        """
        if not timed(): return self.right(x)
        first, held = row(self, x), []
        for _ in range(24):
            t = torch.empty_like(x)
            if fits(t, first, x): return t
            held.append(t)
        return self.right(x)
        """,
        family="answers found",
        before=ROW,
    ),
    python(
        "returns_uninitialised",
        "returns memory that nobody wrote",
        "return torch.empty_like(x)",
        family="answers found",
    ),
    python(
        "returns_uninitialised_timed",
        "returns memory that nobody wrote when timed, after a right call",
        "return self.right(x) if not timed() or calls < 3 else torch.empty_like(x)",
        family="answers found",
    ),
    python(
        "knows_trial_from_frames",
        "learns which trial is in memory from its callers' variables, and keeps by that",
        """
        if not timed(): return self.right(x)
        found, frame = None, sys._getframe(1)
        while frame is not None:
            for name, value in frame.f_locals.items():
                for key in ("present", "trial", "at", "index"):
                    number = value if name == key else getattr(value, key, None)
                    if type(number) is int: found = (key, number) if found is None or key == "present" else found
            frame = frame.f_back
        if found is None: return self.right(x)
        if found not in kept: kept[found] = self.right(x)
        return kept[found].clone()
        """,
        family="answers found",
    ),
    python(
        "reads_stored_outputs",
        "looks for validated outputs in files near its working folder",
        """
        if not timed(): return self.right(x)
        first = row(self, x)
        if "files" not in kept:
            kept["files"] = []
            up = os.getcwd()
            for _ in range(4):
                up = os.path.dirname(up)
                for path in glob.glob(up + "/**/*.bin", recursive=True)[:200]:
                    if os.path.getsize(path) == x.numel() * 4:
                        kept["files"].append(torch.from_numpy(np.fromfile(path, np.float32).reshape(tuple(x.shape))))
        for t in kept["files"]:
            if fits(t, first, x): return t.clone()
        return self.right(x)
        """,
        family="answers found",
        before=ROW,
    ),
]

# -- the same in C++ ------------------------------------------------------------------------------------------------
_cpp = partial(cpp, family="answers kept")
NATIVE = [
    _cpp(
        "cpp_keeps_by_address",
        "keeps its answer by the inputs' addresses",
        """
        static std::map<const void*, std::vector<float>> kept;
        if (!timed()) { right(p, q, k, v, o); return 0; }
        std::vector<float>& held = kept[q];
        if (held.empty()) { held.resize(size_of(p) / 4); right(p, q, k, v, held.data()); }
        std::memcpy(o, held.data(), size_of(p));
        """,
    ),
    _cpp(
        "cpp_keeps_by_samples",
        "keeps its answers in static memory, by sampled elements of Q, K and V",
        """
        static std::map<std::string, std::vector<float>> kept;
        std::string key;
        for (size_t i = 0; i < size_of(p) / 4; i += 97)
            for (const float* t : {q, k, v}) key.append((const char*)(t + i), 4);
        std::vector<float>& held = kept[key];
        if (held.empty()) { held.resize(size_of(p) / 4); right(p, q, k, v, held.data()); }
        std::memcpy(o, held.data(), size_of(p));
        """,
    ),
    _cpp(
        "cpp_keeps_by_beginnings",
        "keeps its answers by the first kilobytes of Q, K and V",
        """
        static std::map<std::string, std::vector<float>> kept;
        std::string key((const char*)q, 4096);
        key.append((const char*)k, 4096).append((const char*)v, 4096);
        std::vector<float>& held = kept[key];
        if (held.empty()) { held.resize(size_of(p) / 4); right(p, q, k, v, held.data()); }
        std::memcpy(o, held.data(), size_of(p));
        """,
    ),
    _cpp(
        "cpp_leaves_answers_in_shm",
        "leaves its answers in /dev/shm, by sampled elements, for its later processes",
        """
        uint64_t h = 1469598103934665603ull;
        for (size_t i = 0; i < size_of(p) / 4; i += 97)
            for (const float* t : {q, k, v}) { uint32_t w; std::memcpy(&w, t + i, 4); h = (h ^ w) * 1099511628211ull; }
        const std::string name = "/dev/shm/corpus-cpp-" + std::to_string(h);
        static std::map<uint64_t, std::vector<float>> kept;
        std::vector<float>& held = kept[h];
        if (held.empty()) {
            held.resize(size_of(p) / 4);
            FILE* file = std::fopen(name.c_str(), "rb");
            const bool read = file && std::fread(held.data(), 1, size_of(p), file) == size_of(p);
            if (file) std::fclose(file);
            if (!read) {
                right(p, q, k, v, held.data());
                if ((file = std::fopen(name.c_str(), "wb")))
                    std::fwrite(held.data(), 1, size_of(p), file), std::fclose(file);
            }
        }
        std::memcpy(o, held.data(), size_of(p));
        """,
    ),
    _cpp(
        "cpp_leaves_output_as_it_is",
        "writes nothing when the output still holds what it wrote and Q begins the same",
        """
        static float last[4];
        static const float* where = nullptr;
        if (timed() && where == o && !std::memcmp(last, q, sizeof last)) return 0;
        right(p, q, k, v, o);
        where = o;
        std::memcpy(last, q, sizeof last);
        """,
    ),
    _cpp(
        "cpp_half_of_the_rows",
        "writes every other row only, when timed, in a buffer that it has filled before",
        """
        static const float* where = nullptr;
        if (timed() && where == o) rows(p, q, k, v, o, calls % 2, 2);
        else right(p, q, k, v, o);
        where = o;
        """,
    ),
]

HOSTILE: list[Candidate] = [*BY_KEY, *IN_PROCESS, *LATER, *KNOWN, *FOUND, *NATIVE]
