"""From images to a bundle: mixed-scale distillation, evaluation, calibration, reports."""
