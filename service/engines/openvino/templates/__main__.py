"""`python -m service.engines.openvino.templates`: convert the default bundle's network again."""

from san_core.bundle import load
from service.engines.openvino.convert import convert
from service.engines.openvino.template import SHIPPED, shipped_name

bundle = load()
config = bundle.manifest.network
name = shipped_name(config.architecture, config.num_classes, config.generate_stem)
convert(bundle).write(SHIPPED / f"{name}.xml")
