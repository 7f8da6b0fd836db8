import time; T0=time.time()
import itertools, torch, triton
import ropewalk as rw
import importlib
RK,SK,TK,LN=(importlib.import_module("ropewalk.ops."+n) for n in ("rotate.kernel","sphere.kernel","turn.kernel","launch"))
from ropewalk.models import ViT
dev="cuda"; torch.manual_seed(0)
def bench(f, n=9, inner=8):
    f(); f(); torch.cuda.synchronize()
    g=torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for _ in range(inner): f()
    ts=[]
    for _ in range(n):
        a=torch.cuda.Event(enable_timing=True); b=torch.cuda.Event(enable_timing=True)
        a.record(); g.replay(); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b)/inner)
    return sorted(ts)[n//2]
R=torch.ops.ropewalk
for (B,N,H,hk,D) in ((4,8192,32,8,128),(256,196,6,6,64)):
    qkv=torch.randn(B,N,H+2*hk,D,device=dev,dtype=torch.bfloat16)
    qv,kv=qkv[:,:,:H].transpose(1,2),qkv[:,:,H:H+hk].transpose(1,2); q,k=qv.contiguous(),kv.contiguous(); oq,ok=torch.empty_like(q),torch.empty_like(k)
    byt=4*(q.numel()+k.numel())
    t0=bench(lambda:(oq.copy_(q),ok.copy_(k)))
    cat=torch.cat([q.flatten(),k.flatten()]); oc=torch.empty_like(cat); t1=bench(lambda: oc.copy_(cat))
    print((B,N,H,hk,D),"copy two",round(byt/t0/1e6),"copy one",round(byt/t1/1e6), flush=True)
    for inter,h in ((True,1),(False,1),(True,hk)):
        a=torch.randn(h,N,D//2,device=dev); res=[]
        for e,w,p in itertools.product((1024,2048,4096,8192),(2,4,8),(1024,2048,4096,8192)):
            if e//(w*32)<8 or e//(w*32)>64: continue
            RK.ELEMENTS,RK.WARPS,LN.PROGRAMS=e,w,p
            f=bench(lambda: R.rotate_fused([q,k],[a,a],[None,None],inter,[0,0])); fv=bench(lambda: R.rotate_fused([qv,kv],[a,a],[None,None],inter,[0,0]))
            bk=bench(lambda: R.rotate_back([q,k],[q,k],[a,a],[None,None],inter,[0,0]))
            res.append((f+fv+bk,e,w,p,round(byt/f/1e6),round(byt/fv/1e6),round(1.5*byt/bk/1e6)))
        res.sort(); print(" rotate inter",inter,"h",h,"best (elements,warps,programs,fwd,view,back):",[r[1:] for r in res[:5]], "fwd best",max(r[4] for r in res), max(r[5] for r in res), max(r[6] for r in res), flush=True)
    RK.ELEMENTS,RK.WARPS,LN.PROGRAMS=2048,4,2048
    a=torch.randn(hk,N,D//3,2,device=dev); res=[]
    for e,p in itertools.product((512,1024,2048),(2048,4096)):
        SK.ELEMENTS,LN.PROGRAMS=e,p
        f=bench(lambda: R.sphere_fused([q,k],[a,a],[0,0])); bk=bench(lambda: R.sphere_back([q,k],[q,k],[a,a],[0,0])); res.append((e,p,round(byt/f/1e6),round(1.5*byt/bk/1e6)))
    print(" sphere",res, flush=True)
    if D<=64:
      for b in (8,64):
        m=torch.randn(hk,N,D//b,b,b,device=dev); res=[]
        for rws,p in itertools.product((32,64,128),(1024,2048,4096)):
            TK.ROWS,LN.PROGRAMS=rws,p
            f=bench(lambda: R.turn_fused([q,k],[m,m],[0,0])); bk=bench(lambda: R.turn_back([q,k],[q,k],[m,m],[0,0])); res.append((rws,p,round(byt/f/1e6),round(1.5*byt/bk/1e6)))
        print(" turn",b,res, flush=True)
TK.ROWS,LN.PROGRAMS=64,2048
print("ops took",time.time()-T0, flush=True)
from torch.profiler import profile, ProfilerActivity
def prof(enc,opt):
    torch.manual_seed(0); torch.compiler.reset()
    v=ViT("small",encoding=enc,options=opt).cuda(); v.compile(); o=torch.optim.AdamW(v.parameters(),lr=1e-3,fused=True)
    x=torch.randn(256,3,224,224,device=dev); t=torch.randint(1000,(256,),device=dev)
    def step():
        with torch.autocast("cuda",torch.bfloat16): loss=torch.nn.functional.cross_entropy(v(x),t)
        loss.backward(); o.step(); o.zero_grad(set_to_none=True)
    for _ in range(4): step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA,ProfilerActivity.CPU]) as p:
        for _ in range(2): step()
        torch.cuda.synchronize()
    ev=[e for e in p.key_averages() if e.self_device_time_total>0]
    ev.sort(key=lambda e:-e.self_device_time_total)
    print("==",enc,"total ms",sum(e.self_device_time_total for e in ev)/2e3)
    for e in ev[:22]: print("  %8.3f ms x%d %s"%(e.self_device_time_total/2e3,e.count/2,e.key[:110]), flush=True)
for enc,opt in (("none",{}),("axial",{}),("mixed",{})):
    prof(enc,opt)
