"""The ``triton`` backend: attention as fused kernels, forward and backward. Import it only where triton is installed."""
