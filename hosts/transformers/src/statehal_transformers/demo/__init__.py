"""A real language model generates text twice, on the pool and on transformers' own cache, compared logit by logit.

Run it with ``python -m statehal_transformers.demo``. Exit codes:

====  ==============================================================================
0     every logit is equal, bit for bit
1     some logit differs, as it must with ``--inject-fault``
2     usage or environment: a bad option, a model that cannot be loaded, no backend
3     a byte of the pool was flipped and no logit differs
====  ==============================================================================
"""

EQUAL, DIFFERS, ENVIRONMENT, UNNOTICED = 0, 1, 2, 3
