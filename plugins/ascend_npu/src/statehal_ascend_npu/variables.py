"""The environment variables of this backend."""

from statehal.env import Variable

CONV = Variable(
    "STATEHAL_ASCEND_NPU_CONV",
    "offset",
    "commit protocol of new conv windows: offset moves no row, rollback keeps live rows at the end of the window",
    ("offset", "rollback"),
)
KV = Variable(
    "STATEHAL_ASCEND_NPU_KV",
    "ND",
    "format of new KV pools: ND, or NZ where every row is a whole number of 32-byte fractals",
    ("ND", "NZ"),
)
OPERATORS = Variable(
    "STATEHAL_ASCEND_NPU_OPERATORS",
    "",
    "for tests: a module that registers operators with kernels for the host, on which the backend is then ready",
)

VARIABLES = (CONV, KV, OPERATORS)
