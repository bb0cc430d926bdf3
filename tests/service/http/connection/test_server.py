from service.http.connection.server import server_config
from service.settings import Settings


def test_a_fraction_of_a_second_is_not_none():
    config = server_config(None, Settings(keep_alive_s=0.5, drain_timeout_s=0.2))
    assert (config.timeout_keep_alive, config.timeout_graceful_shutdown) == (1, 1)
