"""Fused kernels of a decode step, in Triton: what torch's own operators leave of a GPU's bandwidth unused.

A decode step reads every weight once and computes next to nothing, so its time is bytes over bandwidth plus a gap for
each kernel. Here a layer is seven kernels instead of some twenty-five. Sums are taken in one fixed order, whatever the
number of rows, so a row's logits are the same to the bit alone and in a batch.

Every kernel also runs on a CPU, by Triton's interpreter (`TRITON_INTERPRET=1`), where the tests hold it to torch.
https://triton-lang.org
"""
