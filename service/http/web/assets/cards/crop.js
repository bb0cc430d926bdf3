// The picture as the network gets it: a centred square, drawn at the resolution.

/** The part of a width x height picture that is classified. */
export function cropBox(width, height, ratio) {
  const side = ratio * Math.min(width, height);
  return { left: (width - side) / 2, top: (height - side) / 2, side };
}

/** Draw that part at resolution x resolution; the style sheet enlarges it without smoothing. */
export function drawAsSeen(canvas, bitmap, resolution, ratio) {
  const { left, top, side } = cropBox(bitmap.width, bitmap.height, ratio);
  canvas.width = resolution;
  canvas.height = resolution;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, left, top, side, side, 0, 0, resolution, resolution);
}
