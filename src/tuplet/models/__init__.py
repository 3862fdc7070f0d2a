"""Block, pooling, heads, the model, and the parser of its names."""

from tuplet.models.config import ModelConfig
from tuplet.models.model import Transformer, build
from tuplet.models.name import Choices, known_names, parse
from tuplet.models.prepare import Prepared

__all__ = ["Choices", "ModelConfig", "Prepared", "Transformer", "build", "known_names", "parse"]
