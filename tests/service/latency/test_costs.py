from service.latency.costs import Costs
from tests.service.fakes import GatedEngine


def test_a_shape_is_counted_once(monkeypatch):
    engine, asked = GatedEngine(4), []
    count = engine.cost

    def cost(resolution, precision):
        asked.append((resolution, precision))
        return count(resolution, precision)

    monkeypatch.setattr(engine, "cost", cost)
    costs = Costs(engine)
    assert costs((64, "float")) is costs((64, "float"))
    assert costs((96, "int8")).macs == 96**2
    assert asked == [(64, "float"), (96, "int8")]
    assert costs.unknown([(64, "float"), (32, "int8"), (32, "int8")]) == [(32, "int8")]
