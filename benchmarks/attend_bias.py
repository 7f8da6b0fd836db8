"""What flex attention spares: peak memory and time of attention with ALiBi, beside the dense mask, in one run.

python benchmarks/attend_bias.py results/attend-bias.json
"""

import datetime
import json
import statistics
import sys

import torch

import ropewalk as rw

HEADS, WIDTH, LENGTHS = 16, 64, (1024, 4096, 16384)


def measure(kernel: str, n: int) -> dict[str, float]:
    """Median time of forward and backward, by events, and the peak of memory above the inputs."""
    encoding = rw.create("alibi", head_dim=WIDTH, heads=HEADS).cuda()
    code = encoding(torch.arange(n, device="cuda"))
    q, k, v = torch.randn(3, 1, HEADS, n, WIDTH, device="cuda", dtype=torch.bfloat16).requires_grad_().unbind()

    def step() -> torch.Tensor:
        out = rw.attend(q, k, v, code, kernel=kernel)
        torch.autograd.grad(out.float().square().sum(), [q, k, v])
        return out.detach()

    for _ in range(3):
        out = step()
    exact = rw.attend(*(x.detach()[:, :, :1024].float() for x in (q, k, v)), encoding(torch.arange(1024, device="cuda")))
    if n == 1024:
        torch.testing.assert_close(out.float(), exact, rtol=0.02, atol=0.02)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(10):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return {"ms": statistics.median(times), "MiB": (torch.cuda.max_memory_allocated() - before) / 2**20}


def main(path: str) -> None:
    rows = []
    for n in LENGTHS:
        torch.manual_seed(0)
        dense, flex = measure("sdpa", n), measure("flex", n)
        ratio = {"time": dense["ms"] / flex["ms"], "memory": dense["MiB"] / flex["MiB"]}
        rows.append({"tokens": n, "sdpa": dense, "flex": flex, "sdpa over flex": ratio})
        print(f"{n:6} tokens  sdpa {dense}  flex {flex}  ratio {ratio}")
    versions = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "date": str(datetime.date.today())}
    what = f"attention with ALiBi, forward and backward, bf16, batch 1, {HEADS} heads of {WIDTH}"
    with open(path, "w") as file:
        json.dump({"what": what, **versions, "rows": rows}, file, indent=1)
    print(f"written to {path}")


if __name__ == "__main__":
    main(sys.argv[1])
