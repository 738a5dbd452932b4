"""Tutti under PyTorch: one line of a training script changes."""
