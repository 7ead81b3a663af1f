"""A lab's day: python day.py sqlite:///lab.db lab.yaml python train.py."""

import datetime
import os
import pathlib
import subprocess
import sys

import resource_objects as ro
from resource_objects import site
from resource_objects.cli.environment import read_environment
from resource_objects.ledger.lease import Lease

url, machines, *program = sys.argv[1:]
hour = datetime.timedelta(hours=1)
lab = ro.connect(url, actor="admin")
print(site.apply_site(lab, site.Site.parse(pathlib.Path(machines).read_text(), file=machines)))
lab.feed.set_retention(400 * 24 * hour)  # how far back use over time is known
for n in range(19):  # nineteen people want three GPUs, or half a one
    wants = "VCPU=4,CUSTOM_PGPU_HALF=1" if n % 2 else ro.Request("VCPU=16,PGPU=3", near="numa")
    lab.claim(f"job-{n}", lab.snapshot().candidates(wants), user=f"user-{n}", expires_in=8 * hour)
test = lab.claim("test", lab.snapshot(at="lab-5").candidates("PGPU=2"), user="ann", expires_in=hour)
with Lease(lab, test, expires_in=hour):  # the twentieth runs a program on two of lab-5
    subprocess.run(program, env=os.environ | read_environment(lab, test), check=True)
print(*lab.snapshot().host_usage(), sep="\n")  # who has what
print(lab.snapshot().candidates("PGPU=8").explain())  # why nobody gets a whole machine
print(lab.disable("lab-4", reason="fan").disabled)
for job in lab.drain("lab-0", reason="xid 79"):
    print(lab.move(job.name, lab.snapshot().candidates(job.request)))
lab.enable("lab-0")
print(lab.renew("job-2", expires_in=8 * hour), *lab.release_expired())
print(*lab.release_all(["test", *(job.name for job in lab.consumers(user="user-3"))]), sep="\n")
print(*lab.use_over_time.between(lab.now() - hour), site.export_site(lab), sep="\n")
