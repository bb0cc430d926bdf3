// Drop, paste, pick or take an example; then the thumbnail and what the network saw.

import { byId, h } from "../basics/dom.js";
import { cropBox, drawAsSeen } from "./crop.js";
import { count, shortLabel } from "../basics/format.js";

const EXAMPLES = [
  ["cat", "a cat"],
  ["coffee", "a cup of coffee"],
  ["rocket", "a rocket at launch"],
  ["clock", "a clock, the camera moving: hard"],
  ["astronaut", "an astronaut: hard"],
  ["coins", "ancient coins: hard"],
];

/**
 * Wire the picture card. `onPicture(picture)` gets {blob, name, bitmap, url}; the bitmap is null
 * where the browser cannot decode what the service may still understand.
 */
export function pictureCard(onPicture, onTake) {
  const thumb = byId("thumb");
  const name = byId("picture-name");
  const canvas = byId("seen");
  const caption = byId("seen-caption");
  let current = null;
  let ratio = 0.875;
  let ratios = new Map();

  async function take(blob, title, exampleButton = null) {
    onTake();
    let bitmap = null;
    try {
      bitmap = await createImageBitmap(blob);
    } catch {
      // Not for this browser; the service decides by the bytes.
    }
    if (current) URL.revokeObjectURL(current.url);
    current = { blob, name: title, bitmap, url: URL.createObjectURL(blob) };
    for (const button of byId("examples").children) {
      button.setAttribute("aria-pressed", String(button === exampleButton));
    }
    showThumb();
    onPicture(current);
  }

  function showThumb() {
    const { bitmap, url, blob } = current;
    const size = `${count(Math.max(1, Math.round(blob.size / 1000)))}\u202fKB`;
    name.title = current.name;
    if (!bitmap) {
      name.textContent = `${current.name}, ${size}`;
      thumb.replaceChildren(h("span", { class: "muted small" }, "no preview"));
      return;
    }
    name.textContent = `${current.name}, ${bitmap.width} × ${bitmap.height}, ${size}`;
    const scale = Math.min(84 / bitmap.width, 72 / bitmap.height);
    const { left, top, side } = cropBox(bitmap.width, bitmap.height, ratio);
    const x = (84 - bitmap.width * scale) / 2;
    const y = (72 - bitmap.height * scale) / 2;
    const frame = h("span", { class: "frame" });
    Object.assign(frame.style, {
      left: `${x + left * scale}px`,
      top: `${y + top * scale}px`,
      width: `${side * scale}px`,
      height: `${side * scale}px`,
    });
    const image = h("img", { alt: `The chosen picture: ${current.name}`, src: url });
    image.width = Math.round(bitmap.width * scale);
    image.height = Math.round(bitmap.height * scale);
    thumb.replaceChildren(image, frame);
  }

  async function takeExample(file, title, button) {
    try {
      const response = await fetch(`/assets/examples/${file}.jpg`);
      await take(await response.blob(), `${file}.jpg`, button);
    } catch {
      name.textContent = "The example could not be loaded.";
    }
  }

  byId("examples").replaceChildren(
    ...EXAMPLES.map(([file, title]) => {
      const button = h(
        "button",
        { type: "button", "aria-pressed": "false", "aria-label": `Example: ${title}`, title },
        h("img", { src: `/assets/examples/${file}.jpg`, alt: "", width: 104, height: 78 }),
      );
      button.addEventListener("click", () => takeExample(file, title, button));
      return button;
    }),
  );
  byId("file").addEventListener("change", (event) => {
    const [file] = event.target.files;
    if (file) take(file, file.name);
    event.target.value = ""; // so that the same file can be chosen again
  });
  document.addEventListener("paste", (event) => {
    const [file] = event.clipboardData?.files ?? [];
    if (file) {
      event.preventDefault();
      take(file, file.name || "pasted picture");
    }
  });
  for (const type of ["dragover", "dragleave", "drop"]) {
    window.addEventListener(type, (event) => {
      event.preventDefault();
      const inside = type === "dragover";
      document.body.classList.toggle("dragging", inside);
      const [file] = type === "drop" ? (event.dataTransfer?.files ?? []) : [];
      if (file) take(file, file.name);
    });
  }

  return {
    get current() {
      return current;
    },
    /** The crops of the bundle's preprocessing: the usual one, and that of every point. */
    setCrops(usual, points) {
      ratios = new Map(points.map((point) => [point.resolution, point.crop_ratio]));
      if (usual === ratio) return;
      ratio = usual;
      if (current) showThumb();
    },
    /** Draw what the network got for this answer. */
    showSeen(resolution, label) {
      if (!current?.bitmap) {
        canvas.width = 1;
        caption.textContent = "This browser cannot show the picture; the service read it.";
        return;
      }
      const crop = ratios.get(resolution) ?? ratio;
      drawAsSeen(canvas, current.bitmap, resolution, crop);
      const what = `${resolution} × ${resolution} px`;
      canvas.setAttribute("aria-label", `The picture as the network saw it, at ${what}`);
      const share = `${(100 * crop).toFixed(1).replace(".0", "")}\u202f%`;
      caption.replaceChildren(
        "As the network saw it: ",
        h("strong", null, what),
        `, the centred ${share} of the picture, read as “${shortLabel(label)}”.`,
      );
    },
    /** The service could not read it: nothing was seen. */
    clearSeen() {
      canvas.width = 1;
      canvas.height = 1;
      caption.textContent = "The network saw nothing.";
    },
    /** A frame of the camera, which has its own preview. */
    setFrame(blob, bitmap) {
      if (current) URL.revokeObjectURL(current.url);
      current = { blob, name: "camera.jpg", bitmap, url: "" };
      name.textContent = `camera, ${bitmap.width} × ${bitmap.height}`;
    },
    useFirstExample() {
      byId("examples").firstElementChild?.click();
    },
  };
}
