"""The truth of one trial, measured by arithmetic of the precision that was declared, or by another."""

from . import agreement, protocol, rounding


def judged_as(request, workload, name):
    """Beyond plain arithmetic in the dtype: what the kernel declares, and else, as for every reference, what PyTorch
    itself does here: a solution is built of PyTorch's operators, and they obey its switches."""
    declared = request.precision
    if name == protocol.KERNEL and declared is not None:
        return rounding.effective(declared, workload.dtype)
    return workload.precision(request.device)


class Measured:
    """A trial's truth; made once for each precision that is asked for."""

    def __init__(self, workload, arrays, sha256, cache):
        self.parts = workload, arrays, sha256, cache
        self.found = {}

    def by(self, precision):
        """A `truth.Exact`, or None."""
        key = tuple(precision)
        if key not in self.found:
            workload, arrays, sha256, cache = self.parts
            self.found[key] = workload.truth(arrays, sha256, cache, precision)
        return self.found[key]

    def would_pass(self, value, limits):
        """The precision at which an output that fails would pass, had it been declared; else nothing."""
        wider = rounding.effective(rounding.DECLARED, self.parts[0].dtype)
        exact = self.by(wider) if tuple(wider) not in self.found else None
        if exact is None or not agreement.compare(value, exact.values, limits, exact.yardstick)["passed"]["rounding"]:
            return []
        return wider
