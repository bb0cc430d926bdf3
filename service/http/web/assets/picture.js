// Drop, paste, pick or take an example; then the thumbnail and what the network saw.

import { byId, h } from "./dom.js";
import { cropBox, drawAsSeen } from "./crop.js";
import { count, shortLabel } from "./format.js";

const EXAMPLES = [
  ["traffic-light", "a traffic light at dusk"],
  ["ladybug", "a ladybug on a leaf"],
  ["clock", "a clock on a wall"],
  ["daisy", "a daisy in a meadow"],
  ["balloon", "a hot-air balloon over hills"],
  ["lemon", "a lemon on a table"],
];

/**
 * Wire the picture card. `onPicture(picture)` gets {blob, name, bitmap, url}; the bitmap is null
 * where the browser cannot decode what the service may still understand.
 */
export function pictureCard(onPicture) {
  const thumb = byId("thumb");
  const name = byId("picture-name");
  const canvas = byId("seen");
  const caption = byId("seen-caption");
  let current = null;
  let ratio = 0.875;

  async function take(blob, title, exampleButton = null) {
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
      await take(await response.blob(), title, button);
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
    /** The crop the bundle's preprocessing uses. */
    setCropRatio(value) {
      if (value === ratio) return;
      ratio = value;
      if (current) showThumb();
    },
    get cropRatio() {
      return ratio;
    },
    /** Draw what the network got for this answer. */
    showSeen(resolution, label) {
      if (!current?.bitmap) {
        canvas.width = 1;
        caption.textContent = "This browser cannot show the picture; the service read it.";
        return;
      }
      drawAsSeen(canvas, current.bitmap, resolution, ratio);
      const what = `${resolution} × ${resolution} px`;
      canvas.setAttribute("aria-label", `The picture as the network saw it, at ${what}`);
      const share = `${(100 * ratio).toFixed(1).replace(".0", "")}\u202f%`;
      caption.replaceChildren(
        "As the network saw it: ",
        h("strong", null, what),
        `, the centred ${share} of the picture, read as “${shortLabel(label)}”.`,
      );
    },
    useFirstExample() {
      byId("examples").firstElementChild?.click();
    },
  };
}
