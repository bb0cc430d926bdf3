// Frames of the camera, one after the other, as fast as answers come.

import { byId, h } from "../basics/dom.js";

const SIDE = 480;
const PAUSE_MS = 30;

/** `onFrame(blob)` returns a promise that ends when the frame was answered. */
export function camera(onFrame, onTrouble) {
  const button = byId("camera");
  const thumb = byId("thumb");
  let stream = null;

  async function start() {
    try {
      if (!navigator.mediaDevices) throw new DOMException("", "SecurityError");
      stream = await navigator.mediaDevices.getUserMedia({ video: { width: SIDE, height: SIDE } });
    } catch (error) {
      onTrouble({ title: "No camera", message: reason(error.name) });
      return;
    }
    const mine = stream;
    const video = h("video", { muted: true, playsinline: true, "aria-label": "The camera" });
    video.muted = true;
    video.srcObject = mine;
    thumb.replaceChildren(video);
    mark(true);
    await video.play();
    const canvas = h("canvas", null);
    while (stream === mine) {
      canvas.width = video.videoWidth;
      canvas.height = video.videoHeight;
      canvas.getContext("2d").drawImage(video, 0, 0);
      const blob = await new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.85));
      if (blob && stream === mine && !document.hidden) await onFrame(blob, canvas);
      await new Promise((wake) => setTimeout(wake, PAUSE_MS));
    }
  }

  function stop() {
    if (!stream) return;
    for (const track of stream.getTracks()) track.stop();
    stream = null;
    mark(false);
  }

  function mark(on) {
    button.setAttribute("aria-pressed", String(on));
    button.textContent = on ? "stop the camera" : "use the camera";
  }

  button.addEventListener("click", () => (stream ? stop() : start()));
  return { stop };
}

function reason(name) {
  if (name === "NotAllowedError") return "This page may not use the camera; allow it in the address bar.";
  if (name === "NotFoundError") return "This machine has no camera.";
  if (name === "SecurityError") return "Browsers offer the camera to https and localhost only.";
  return "The camera could not be started.";
}
