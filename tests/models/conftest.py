"""The zoo of models, for all tests here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
