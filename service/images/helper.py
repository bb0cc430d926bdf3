"""A process that decodes images and can be killed.

Run as `python -m service.images.helper MEMORY_BYTES NICE [HEIF]`: jobs come on standard input,
answers go to standard output, until the input ends. Pillow's decoders are C code that has had its
faults; what goes wrong here costs one request. The process can open nothing: no file, no socket, no
child, for it gives up the right to further descriptors before it reads its first byte. With HEIF it
may start threads, because libde265 cannot do without.

A job is the image's length, the CPU time it may take in seconds, the resolution and the length of a
JSON object, then that object (how to preprocess, which formats) and the image. An answer is a
status and a length, then pixels [T, T, 3] or a sentence.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
from typing import BinaryIO

JOB = struct.Struct("<IdII")
ANSWER = struct.Struct("<BI")
DONE, REFUSED, TOO_LARGE = range(3)


def _give_up_rights(memory_bytes: int, nice: int, *, threads: bool) -> None:
    os.nice(nice)
    with open("/proc/self/statm") as statm:  # noqa: PTH123 (before the last descriptor is gone)
        now = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + memory_bytes, now + memory_bytes))
    rights = [resource.RLIMIT_CORE, resource.RLIMIT_FSIZE]
    if not threads:
        rights.append(resource.RLIMIT_NPROC)  # counts threads as well as processes
    for right in rights:
        resource.setrlimit(right, (0, 0))
    # Standard input, output and error are all there will ever be.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))


def _read(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) != size:
        raise EOFError
    return data


def main() -> None:
    """Serve jobs until the parent closes the pipe."""
    from PIL import AvifImagePlugin, Image

    from san_core.errors import ImageError, ImageTooLargeError
    from san_core.preprocessing import Preprocessing, decode
    from service.images.formats import HEIF

    heif = HEIF in sys.argv[3:]
    if heif:
        import pi_heif

        pi_heif.register_heif_opener(thumbnails=False, decode_threads=1)
    Image.init()  # every plugin: later nothing can be opened
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # others could not be started
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the parent closes the pipe
    _give_up_rights(int(sys.argv[1]), int(sys.argv[2]), threads=heif)
    sink.write(ANSWER.pack(DONE, 0))
    sink.flush()
    while True:
        try:
            size, cpu_s, resolution, how_size = JOB.unpack(_read(source, JOB.size))
            how = json.loads(_read(source, how_size))
            data = _read(source, size)
        except EOFError:
            return
        # The kernel ends the process, wherever it is, once it has used so much CPU time.
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        status = DONE
        try:
            preprocessing = Preprocessing(**how["preprocessing"])
            image = decode(
                data,
                max_pixels=how["max_pixels"],
                at_least=preprocessing.least_side(resolution),
                formats=tuple(how["formats"]),
            )
            answer = preprocessing.to_pixels(image, resolution).tobytes()
            del image
        except ImageTooLargeError as error:
            status, answer = TOO_LARGE, str(error).encode()
        except ImageError as error:
            status, answer = REFUSED, str(error).encode()
        except MemoryError:
            status, answer = TOO_LARGE, b""
        except Exception as error:  # a decoder's own: a new process would cost more than the image
            sentence = f"The image is corrupt: its decoder ends with {type(error).__name__}."
            status, answer = REFUSED, sentence.encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        sink.write(ANSWER.pack(status, len(answer)))
        sink.write(answer)
        sink.flush()
        del data, answer


if __name__ == "__main__":
    main()
