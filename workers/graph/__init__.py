"""Writes a decoder's ONNX graph and its packed weights, with numpy and `onnx` alone.

`open_source` (GGUF file or Hugging Face folder) → `Checkpoint` → `Decoder`, in the dialect of a runtime → `model.onnx`
and its data; for the native engine → `model.native`.
"""
