import sys, json, os
import time; T0=time.time()
import torch, triton
import ropewalk as rw
from ropewalk.ops import rotate, sphere, turn, expm
from ropewalk.ops.rotate.reference import rotate_reference
from ropewalk.ops.sphere.reference import sphere_reference
from ropewalk.ops.turn.reference import turn_reference
from ropewalk.models import ViT
torch.manual_seed(0)
dev="cuda"
def bench(f, n=20):
    for _ in range(3): f()
    torch.cuda.synchronize()
    g=torch.cuda.CUDAGraph()
    s=torch.cuda.Stream()
    with torch.cuda.stream(s):
        f()
    torch.cuda.synchronize()
    with torch.cuda.graph(g): 
        for _ in range(5): f()
    ts=[]
    for _ in range(n):
        a=torch.cuda.Event(enable_timing=True); b=torch.cuda.Event(enable_timing=True)
        a.record(); g.replay(); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b)/5)
    return sorted(ts)[len(ts)//2]
print(torch.__version__, triton.__version__)
# correctness
for dt in (torch.float32, torch.bfloat16):
    for inter in (True, False):
        q=torch.randn(3,65,3,4,64,device=dev,dtype=dt).permute(2,0,3,1,4)[0]; k=torch.randn(3,2,65,64,device=dev,dtype=dt)
        a=(torch.randn(2,63,30,device=dev)*1e3)
        y=torch.ops.ropewalk.rotate_fused([q,k],[a,a],[None,None],inter,[2,2])
        r=rotate_reference([q.double(),k.double()],[a.double(),a.double()],[None,None],inter,[2,2])
        print("rotate",dt,inter,[((m.double()-n).abs().max()).item() for m,n in zip(y,r)])
    a=torch.randn(2,63,21,2,device=dev)
    y=torch.ops.ropewalk.sphere_fused([q,k],[a,a],[2,2]); r=sphere_reference([q.double(),k.double()],[a.double()]*2,[2,2])
    print("sphere",dt,[((m.double()-n).abs().max()).item() for m,n in zip(y,r)])
    for b in (8,64):
        m=torch.randn(2,63,64//b,b,b,device=dev,dtype=torch.float64); m=torch.matrix_exp(m-m.mT)
        y=torch.ops.ropewalk.turn_fused([q,k],[m.float()]*2,[2,2]); r=turn_reference([q.double(),k.double()],[m]*2,[2,2])
        print("turn",b,dt,[((p.double()-n).abs().max()).item() for p,n in zip(y,r)])
for b in (8,64):
    m=torch.randn(50,b,b,device=dev,dtype=torch.float64)*3; m=m-m.mT
    R=torch.matrix_exp(m); print("expm",b,(torch.ops.ropewalk.expm_fused(m.float()).double()-R).abs().max().item())
# speed ops
def views(B,N,H,hk,D):
    qkv=torch.randn(B,N,H+2*hk,D,device=dev,dtype=torch.bfloat16)
    return qkv[:,:,:H].transpose(1,2), qkv[:,:,H:H+hk].transpose(1,2)
for (B,N,H,hk,D) in ((4,8192,32,8,128),(256,196,6,6,64)):
    q,k=views(B,N,H,hk,D); qc,kc=q.contiguous(),k.contiguous(); oq,ok=torch.empty_like(qc),torch.empty_like(kc)
    byt=2*(q.numel()+k.numel())*2
    def copy(): oq.copy_(qc); ok.copy_(kc)
    t0=bench(copy)
    res={"copy":byt/t0/1e6}
    for inter in (True,False):
        for h in (1,hk):
            a=torch.randn(h,N,D//2,device=dev)
            t=bench(lambda: torch.ops.ropewalk.rotate_fused([q,k],[a,a],[None,None],inter,[0,0])); res[f"rotate i{int(inter)} h{h}"]=byt/t/1e6
            y=torch.ops.ropewalk.rotate_fused([q,k],[a,a],[None,None],inter,[0,0])
            t=bench(lambda: torch.ops.ropewalk.rotate_back(y,y,[a,a],[None,None],inter,[0,0])); res[f"back i{int(inter)} h{h}"]=byt*1.5/t/1e6
    T=D//3; a=torch.randn(hk,N,T,2,device=dev)
    t=bench(lambda: torch.ops.ropewalk.sphere_fused([q,k],[a,a],[0,0])); res["sphere"]=byt/t/1e6
    y=[q,k]
    t=bench(lambda: torch.ops.ropewalk.sphere_back(y,y,[a,a],[0,0])); res["sphere back"]=byt*1.5/t/1e6
    for b in ((8,D) if D<=64 else ()):
        m=torch.randn(hk,N,D//b,b,b,device=dev)
        t=bench(lambda: torch.ops.ropewalk.turn_fused([q,k],[m,m],[0,0])); res[f"turn{b}"]=byt/t/1e6
        t=bench(lambda: torch.ops.ropewalk.turn_back(y,y,[m,m],[0,0])); res[f"turn{b} back"]=byt*1.5/t/1e6
    print((B,N,H,hk,D), {n:round(v) for n,v in res.items()})
for b in (8,64):
    m=torch.randn(12,6,196,64//b,b,b,device=dev); m=m-m.mT; R=torch.ops.ropewalk.expm_fused(m)
    print("expm all layers ms", b, bench(lambda: torch.ops.ropewalk.expm_fused(m)), bench(lambda: torch.ops.ropewalk.expm_back(R,m,R)))
# vit steps
def step_time(enc,opt,compiled,n=15):
    torch.manual_seed(0); torch.compiler.reset()
    v=ViT("small",encoding=enc,options=opt).cuda(); 
    if compiled: v.compile()
    o=torch.optim.AdamW(v.parameters(),lr=1e-3,fused=True)
    x=torch.randn(256,3,224,224,device=dev); t=torch.randint(1000,(256,),device=dev)
    def step():
        with torch.autocast("cuda",torch.bfloat16): loss=torch.nn.functional.cross_entropy(v(x),t)
        loss.backward(); o.step(); o.zero_grad(set_to_none=True); return loss
    for _ in range(4): step()
    torch.cuda.reset_peak_memory_stats(); ts=[]
    for _ in range(n):
        a=torch.cuda.Event(enable_timing=True); b=torch.cuda.Event(enable_timing=True)
        a.record(); l=step(); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b))
    return sorted(ts)[n//2], torch.cuda.max_memory_allocated()/1e9, l.item()
base={}
for compiled in (False, True):
    for enc,opt in (("none",{}),("axial",{}),("mixed",{}),("spherical",{}),("spherical",{"learned":True}),("comrope-ld",{}),("liere",{}),("liere",{"block":64}),("none",{})):
        if time.time()-T0>460: break
        try:
            ms,gb,l=step_time(enc,opt,compiled)
            base.setdefault(compiled,(ms,gb)); b=base[compiled]
            print(f"{'compiled' if compiled else 'eager':9s} {enc:12s} {opt} {ms:.2f} ms {gb:.2f} GB ratio {ms/b[0]:.3f} mem {gb/b[1]:.3f} loss {l:.3f}", flush=True)
        except Exception as e:
            print(compiled, enc, opt, "FAILED", type(e).__name__, str(e)[:500], flush=True)
