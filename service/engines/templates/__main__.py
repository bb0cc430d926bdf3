"""`python -m service.engines.templates`: convert the default bundle's architecture again."""

from san_core.bundle import load
from service.engines.openvino_convert import convert
from service.engines.openvino_template import SHIPPED, shipped_name

bundle = load()
config = bundle.manifest.network
name = shipped_name(config.architecture, config.num_classes, config.generate_stem)
convert(bundle).write(SHIPPED / f"{name}.xml")
