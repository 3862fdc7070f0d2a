"""What is measured: the speed of training steps today, the paper's tables to come."""
