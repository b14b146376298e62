"""Importing this registers the operators of a build whose causal conv1d is the ``newer`` one."""

from npu_contract_model.register import conv_operator, kv_operators

conv_operator("newer")
kv_operators()
