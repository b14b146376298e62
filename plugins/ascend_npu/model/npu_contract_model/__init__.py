"""What CANN's operators promise and demand, as plain loops: it imports neither statehal nor the backend.

Tensors are storage: every number is a Python float. Where an operator reads or writes outside of its tensors, or leaves
a row uninitialised, the model raises, or fills the row with NaN, so that no caller gets away with it. A mutation is
done whether or not the schema declares it. What an operator does with a well-formed call on hardware is not proven by
this model: it is what is written down of it.
"""
