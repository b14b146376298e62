"""Conv methods that make an argument which does not fit fit, where they should refuse it."""

from conformance.conv_faults import mutant
from conformance.conv_misfits import axes, devices, dtypes, gaps, halves, sizes, takes

KINDS = {
    "size": sizes, "number of axes": axes, "dtype": dtypes, "16-bit dtype": halves, "device": devices, "stride": gaps,
}  # fmt: skip
TAKEN: dict[str, dict[tuple[str, str], tuple[str, ...]]] = {
    "weights_that_do_not_fit_are_refused": {
        ("prepare", "weight"): ("size", "number of axes", "dtype", "device"),
        ("prepare", "bias"): ("size", "number of axes", "dtype"),
    },
    "inputs_and_outputs_that_do_not_fit_are_refused": {
        ("prefill", "x"): ("dtype", "number of axes", "stride"), ("decode", "x"): ("size", "dtype", "device"),
        ("verify", "x"): ("size", "stride", "16-bit dtype"),
    },
    "index_tensors_that_do_not_fit_are_refused": {
        ("prefill", "query_start_loc"): ("size", "dtype"), ("verify", "query_start_loc"): ("size", "number of axes"),
        ("prefill", "has_initial_state"): ("dtype", "size"), ("verify", "parents"): ("size", "dtype"),
        ("commit", "accepted"): ("size", "dtype", "number of axes", "device"), ("commit", "path"): ("size", "dtype"),
        ("commit", "track_accepted"): ("size", "dtype"),
    },
    "slots_that_do_not_fit_are_refused": {
        ("prefill", "initial_slots"): ("size",), ("prefill", "slots"): ("number of axes",),
        ("commit", "state_slots"): ("size", "number of axes"), ("commit", "track_slots"): ("size",),
        ("copy_slots", "dst"): ("size",), ("zero_slots", "slots"): ("number of axes",),
        ("read_state", "slots"): ("number of axes",),
    },
}  # fmt: skip
"""By check, and by method and argument: in what the argument may differ."""

MUTANTS = [
    mutant(f"{run} takes {argument} of another {kind}", f"conv_arguments/{name}", takes(run, argument, KINDS[kind]))
    for name, arguments in TAKEN.items()
    for (run, argument), kinds in arguments.items()
    for kind in kinds
]
