"""Importing this registers the operators of a build whose causal conv1d is the ``custom`` one."""

from npu_contract_model.register import conv_operator, kv_operators

conv_operator("custom")
kv_operators()
