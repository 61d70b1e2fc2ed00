package main

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestTheTimesOfAProcessAndOfItsChildrenAreToldApart(t *testing.T) {
	own, children, err := cpuTimesOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); time.Since(begin) < 5*time.Minute; {
		if now, _, err := cpuTimesOf(os.Getpid()); err != nil || now >= own+50*time.Millisecond {
			break
		}
	}
	own1, children1, err := cpuTimesOf(os.Getpid())
	if err != nil || own1 < own+50*time.Millisecond || children1 != children {
		t.Errorf("after work of its own: %s and %s, before: %s and %s, %v", own1, children1, own, children, err)
	}
	if err := exec.Command("sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done").Run(); err != nil {
		t.Fatal(err)
	}
	if _, now, err := cpuTimesOf(os.Getpid()); err != nil || now <= children1 {
		t.Errorf("after a child's work: %s, before: %s, %v", now, children1, err)
	}
}
