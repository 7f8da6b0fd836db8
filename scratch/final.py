import os, sys, time
from pathlib import Path
T0=float(os.environ.get("T0", time.time()))
what=sys.argv[1]; limit=float(sys.argv[2]); out=Path(os.environ["OUT"])
import torch
from ropewalk.lab.bench.report import run, words, machine
from ropewalk.lab.bench import steps, rotations, lengths
import ropewalk.lab.bench.report as R
start=time.time()
class Stop(Exception): pass
def tell(row):
    print(words(row), flush=True)
    if time.time()-start>limit: raise Stop
ORDER=["none","mixed","axial","spherical","spherical, learned","comrope-ld, block 8","liere, block 8","liere, block 64","uniform","golden","axial, learned","comrope-ap, block 8","learned-ape","string-cayley","swin-bias"]
steps.CONTENDERS={n:steps.CONTENDERS[n] for n in ORDER}
R.SUITES["eager"]=lambda: steps.rows(modes=("eager",)); R.SUITES["compiled"]=lambda: steps.rows(modes=("compiled",))
if what=="prof":
    from torch.profiler import profile, ProfilerActivity
    import functools
    from ropewalk.models import ViT
    tables={}
    for enc in ("none","mixed"):
        torch.manual_seed(0); torch.compiler.reset()
        v=ViT("small",encoding=enc).cuda(); v.compile(); o=torch.optim.AdamW(v.parameters(),lr=1e-3,fused=True)
        x=torch.randn(256,3,224,224,device="cuda"); t=torch.randint(1000,(256,),device="cuda")
        step=functools.partial(steps._train,v,o,x,t)
        for _ in range(4): step()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA,ProfilerActivity.CPU]) as p:
            for _ in range(2): step()
            torch.cuda.synchronize()
        ev=[e for e in p.key_averages() if e.self_device_time_total>0]
        tables[enc]={e.key:(e.self_device_time_total/2e3,e.count/2) for e in ev}
        print("==",enc,"GPU ms",round(sum(a for a,_ in tables[enc].values()),2),flush=True)
    keys=sorted(set(tables["none"])|set(tables["mixed"]),key=lambda k:-abs(tables["mixed"].get(k,(0,0))[0]-tables["none"].get(k,(0,0))[0]))
    for k in keys[:24]: print("  %8.3f -> %8.3f ms  x%d -> x%d  %s"%(tables["none"].get(k,(0,0))[0],tables["mixed"].get(k,(0,0))[0],tables["none"].get(k,(0,0))[1],tables["mixed"].get(k,(0,0))[1],k[:120]),flush=True)
else:
    try: run(what.split(","), out/f"bench-{what.replace(',','-')}.json", tell)
    except Stop: print("stopped by the clock")
print("took",round(time.time()-start), flush=True)
