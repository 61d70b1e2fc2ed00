package site

import (
	"github.com/coreos/go-systemd/v22/daemon"
)

// Without systemd these do nothing, and that they fail changes nothing.

func notifyReady()             { daemon.SdNotify(false, daemon.SdNotifyReady) }
func notifyStopping()          { daemon.SdNotify(false, daemon.SdNotifyStopping) }
func notifyStatus(text string) { daemon.SdNotify(false, "STATUS="+text) }

// NotifyReloading says that the configuration is being read, until the
// function it returns is called.
func NotifyReloading() (done func()) {
	daemon.SdNotify(false, daemon.SdNotifyReloading+"\n"+daemon.SdNotifyMonotonicUsec())
	return notifyReady
}
