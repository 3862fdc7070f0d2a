"""What is measured: the paper's tables beside ours, the speed of training steps, and growth with n."""
