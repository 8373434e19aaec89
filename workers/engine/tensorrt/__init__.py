"""The engine by TensorRT."""
