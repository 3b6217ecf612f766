"""Models for programs without Shoal: ONNX and PyTorch."""
