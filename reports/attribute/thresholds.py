"""The numbers that rules of causes decide by, in one place."""

# Outputs.
# share of trials: what is read from filled memory shows in most; what shows in few comes from elsewhere
SYSTEMATIC = 0.5
FEWEST_REPEATS = 3  # calls of one trial, to tell the first from the later ones
FEWEST_RUNS = 4  # under each environment's variables in each place, that chance does not explain
AS_MUCH = 0.01  # how far an error on smaller inputs may lie from that on the full ones, as a share
FAR_FROM_TRUTH = 0.1  # of a row's largest value: what is so wrong was computed from something else
FAITHFUL_UNITS = 2.0  # an error of so many units is what arithmetic in a dtype costs, and no fault
AS_THE_MODEL = 2.0  # a problem's kernel rounds elsewhere than its model: errors so many times as large are alike
NET = 2.0  # times its own limit: errors beyond pass through a rule that is not that of rounding
LOOSEST_UNITS = 64.0  # a limit that lets this pass is one for arithmetic of which nothing is known
BEYOND_LIMIT = 4.0  # times the limit of rounding: too far for a loose rule to be doubted

# Times.
MOSTLY = 0.6  # share of the other targets that moved alike, to blame the machine
CLOCK_TOLD = 0.01  # change of the clock that a card mentions
MOST = 0.5  # share of a change that makes one thing its reason
CLOCK_MOVED = 0.02  # change of the clock that may explain a time
BUSIER = 0.10  # difference in the share of the machine that others used
FEWEST_LAUNCHES = 3  # of either side, to say that something held in all of them
SAME_WORK = 0.3  # a logarithm: processor time that is within a third of the other's
THREADS_STARTED = 4.0  # threads started in each call
THREADS_MORE = 2.0  # times as many threads started
RESTLESS = 50.0  # switches in a millisecond: no clock of the system's takes a thread off so often
CALM = 5.0  # switches in a millisecond of whoever does not wait
AS_BUSY = 1.1  # times as many processors at work are as many
BEYOND_THREADS = 0.3  # processors at work beyond PyTorch's threads, as a share of these
NOISE = 0.05  # a large problem's own spread hides what a call costs
MANY_CALLS = 3.0  # times as many calls: the same work, cut up
CALLED_MORE = 1.5  # times as many calls are more calls
THREADS_EXPLAIN = 1.3  # times the ratio of threads that a ratio of times may be
WHOLE = 0.8  # share of a change that operators make together, to name no more of them
AGREES = 2.0  # a profile's change and the measured one lie within this ratio of each other
SHORTER = 0.5  # of the time of a call before: calls that were cut up are shorter than this
STILL = 0.3  # of the change of single calls, as logarithms: replays that moved less stood still
LARGER = 4.0  # times the smallest problem's time: a large problem
CONSTANT = 1.5  # times the smallest problem's change: as much for all of them
GROWS = 0.5  # of the smallest problem's relative change: work grows with the problem, a call's cost does not
