from tests.service.conftest import make_settings, running, tiny_bundle

__all__ = ["make_settings", "running", "tiny_bundle"]
