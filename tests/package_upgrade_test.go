package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"shaper/tests/trial"
)

// chrootScript installs and purges the package where no systemd runs.
const chrootScript = `export DEBIAN_FRONTEND=noninteractive
PATH=/usr/sbin:/usr/bin:/sbin:/bin
left() { find / -xdev '(' -path /proc -o -path /sys -o -path /packages -o -path /var/log -o -path /var/cache ')' -prune -o -name '*shaper*' -print; grep -rl shaper /etc --exclude='*-'; }
say() { echo "== $1"; }
say clean; left
say install; apt-get install -qy /packages/shaper_1.0.0-1_*.deb
say user; getent passwd shaper; ls /etc/systemd/system/multi-user.target.wants
say check; shaper check 2>&1; shaper version; man=$(dpkg -L shaper | grep -c 'man/.*gz'); echo "$man pages"
say upgrade; echo '# mine' >>/etc/shaper/shaper.toml; apt-get install -qy /packages/shaper_1.1.0-1_*.deb; shaper version; tail -n 1 /etc/shaper/shaper.toml
say purge; apt-get purge -qy shaper
say left; left; getent passwd shaper; getent group shaper
say end
`

// rpmScript installs, upgrades and removes the other package in a root, while dpkg's tools for services are
// not there.
const rpmScript = `cd "$1"
mkdir aside && mv usr/bin/deb-systemd-* aside
R="rpm --root $PWD --noplugins"
say() { echo "== $1"; }
say install; $R -i --nodeps packages/shaper-1.0.0-1.*.rpm; chroot . getent passwd shaper; ls etc/systemd/system/multi-user.target.wants
say upgrade; echo '# mine' >>etc/shaper/shaper.toml; $R -U --nodeps packages/shaper-1.1.0-1.*.rpm; chroot . shaper version; tail -n 1 etc/shaper/shaper.toml
say remove; $R -e shaper; ls etc/systemd/system/multi-user.target.wants etc/shaper; chroot . getent passwd shaper; chroot . userdel shaper
rm -r etc/shaper; mv aside/* usr/bin; rmdir aside
`

// liveScript is what a service runs under systemd: it installs the package, opens a session, and
// upgrades the package under it.
const liveScript = `ask() { echo "$1" >&3; read -t 20 -r answer <&3; echo "answer: $answer"; }
pid() { systemctl show -P MainPID shaper; }
active() { systemctl is-active shaper; systemctl is-enabled shaper; }
say install; apt-get install -qy /packages/shaper_1.0.0-1_*.deb
say empty; active; stat -c '%a %U %G' /var/lib/shaper; shaper status
cat >/etc/shaper/shaper.d/10-echo.toml <<'END'
[class.echo]
rate = "8KiB/s"
[listener.echo]
listen = "127.0.0.1:7007"
upstream = "echo:"
class = "echo"
END
say reload; systemctl reload shaper && shaper status
say session; exec 3<>/dev/tcp/127.0.0.1/7007; ask before; before=$(pid)
say upgrade; apt-get install -qy /packages/shaper_1.1.0-1_*.deb; echo "pid: $((before - $(pid)))"
say upgraded; ask after; shaper version; shaper status; systemctl show -P NeedDaemonReload shaper
say restart; exec 3>&-; systemctl restart shaper; shaper status
say stopped; systemctl disable --now shaper; apt-get install -qy --reinstall /packages/shaper_1.1.0-1_*.deb; active; systemctl enable --now shaper
say remove; apt-get remove -qy shaper; systemctl is-active shaper; ls /etc/shaper /var/lib/shaper
say again; apt-get install -qy /packages/shaper_1.1.0-1_*.deb; active; exec 3<>/dev/tcp/127.0.0.1/7007; ask again; exec 3>&-
say purge; apt-get purge -qy shaper
say left; left; getent passwd shaper; getent group shaper; systemctl list-units --all --no-legend '*shaper*'; find /run -name '*shaper*'
say end
`

// proofUnit runs liveScript when the machine has booted, and then turns the machine off.
const proofUnit = `[Unit]
SuccessAction=poweroff-immediate
FailureAction=poweroff-immediate
[Service]
Type=oneshot
ExecStartPre=/bin/mount -t hostfs -o PACKAGES none /packages
ExecStart=/bin/bash /packages/live
StandardOutput=file:/packages/report
StandardError=inherit
`

// From a clean Debian: install, upgrade and purge in a chroot without systemd. Then, under a systemd
// that runs as the first process of user-mode Linux: install, start, reload, upgrade with an open
// session, restart, remove and purge. Each purge leaves nothing.
func TestPackageLives(t *testing.T) {
	if !trial.Full {
		t.Skip("runs at full size only: make test-packages")
	}
	if os.Getuid() != 0 {
		t.Skip("makes a chroot: run it as root")
	}
	linux := tool(t, "linux.uml", "user-mode-linux")
	begun := time.Now()
	done := func(what string) {
		t.Logf("%v: %s", time.Since(begun).Round(time.Second), what)
		begun = time.Now()
	}
	root := debianRoot(t)
	done("a Debian is made")
	for _, version := range []string{"1.0.0", "1.1.0"} {
		makeAt(t, "..", "deb", "rpm", "VERSION="+version, "OUT="+root+"/packages")
	}
	done("the packages are built")
	checkChroot(t, parts(output(t, exec.Command("chroot", root, "/bin/bash", "-c", chrootScript))))
	done("the deb has come and gone")
	checkChrootOfRPM(t, parts(output(t, exec.Command("bash", "-c", rpmScript, "bash", root))))
	done("the rpm has come and gone")

	write(t, root+"/packages/live", strings.SplitAfter(chrootScript, "say() { echo \"== $1\"; }\n")[0]+liveScript)
	write(t, root+"/etc/systemd/system/proof.service", strings.ReplaceAll(proofUnit, "PACKAGES", root+"/packages"))
	console := bootRoot(t, linux, root)
	done("the machine has booted, upgraded and purged")
	report, err := os.ReadFile(root + "/packages/report")
	if err != nil {
		t.Fatalf("%v\n%s", err, console)
	}
	checkLive(t, parts(string(report)))
	if t.Failed() {
		t.Logf("%s\n%s", report, console)
	}
}

// checkChroot looks at what chrootScript has printed.
func checkChroot(t *testing.T, got map[string]string) {
	t.Helper()
	for part, want := range map[string]string{
		"clean":   `^$`,
		"user":    `^shaper:x:\d+:\d+:.*\n(.*\n)*shaper.service\n`,
		"check":   `so nothing is shaped(.*\n)*shaper 1\.0\.0 .*\n2 pages\n$`,
		"upgrade": `(?m)^shaper 1\.1\.0 .*\n# mine\n$`,
		"left":    `^$`,
	} {
		expect(t, part, got[part], want)
	}
}

// checkChrootOfRPM looks at what rpmScript has printed.
func checkChrootOfRPM(t *testing.T, got map[string]string) {
	t.Helper()
	for part, want := range map[string]string{
		"install": `^shaper:x:\d+:\d+:.*\n(.*\n)*shaper.service\n$`,
		"upgrade": `^shaper 1\.1\.0 .*\n# mine\n$`,
		"remove":  `^etc/shaper:\nshaper.toml.rpmsave\n\netc/systemd/system/multi-user.target.wants:\nremote-fs.target\nshaper:x:`,
	} {
		expect(t, "rpm: "+part, got[part], want)
	}
}

// checkLive looks at what liveScript has printed.
func checkLive(t *testing.T, got map[string]string) {
	t.Helper()
	for part, want := range map[string]string{
		"empty":    `^active\nenabled\n700 shaper shaper\nshaper 1\.0\.0, running(.*\n)*warnings +1; see shaper check\n`,
		"reload":   `shaper 1\.0\.0, running(.*\n)*echo +tcp 127\.0\.0\.1:7007`,
		"session":  `^answer: before\n$`,
		"upgrade":  `(?m)^shaper keeps its connections, .* systemctl restart shaper\n(.*\n)*pid: 0\n$`,
		"upgraded": `^answer: after\nshaper 1\.1\.0 .*\nshaper 1\.0\.0, running(.*\n)*sessions +1 open(.*\n)*no\n$`,
		"restart":  `^shaper 1\.1\.0, running`,
		"stopped":  `(?m)^inactive\ndisabled\n`,
		"remove":   `(?m)^inactive\n/etc/shaper:\nshaper.d\nshaper.toml\n\n/var/lib/shaper:\nstate`,
		"again":    `(?m)^active\nenabled\nanswer: again\n$`,
		"left":     `^$`,
	} {
		expect(t, part, got[part], want)
	}
}

// expect compares a part of a report with a regular expression.
func expect(t *testing.T, part, got, want string) {
	t.Helper()
	if !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("%s: want %s, got:\n%s", part, want, got)
	}
}

// debianRoot returns the root of a small Debian with systemd, without the users of this machine. Its
// directory /packages is empty.
func debianRoot(t *testing.T) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "root")
	make := exec.Command(tool(t, "mmdebstrap", "mmdebstrap"), "--variant=apt", "--include=systemd-sysv,procps", "bookworm", root)
	if out, err := make.CombinedOutput(); err != nil {
		skipUnlessCI(t, "mmdebstrap cannot make a Debian: %v\n%s", err, out)
	}
	if err := os.Mkdir(root+"/packages", 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// bootRoot boots user-mode Linux with the systemd of a root, until that turns the machine off. It
// returns what is on the console. The machine has a copy of the root on a disk, because hostfs gives
// all new files to root.
func bootRoot(t *testing.T, linux, root string) (console string) {
	t.Helper()
	disk := root + ".ext4"
	output(t, exec.Command(tool(t, "mke2fs", "e2fsprogs"), "-q", "-t", "ext4", "-d", root, disk, "1G"))
	cmd := umlCommand(linux, "mem=512M", "ubd0="+disk, "root=/dev/ubda", "rw", "init=/lib/systemd/systemd",
		"con=null", "con0=null,fd:1", "systemd.unit=proof.service", "systemd.mask=systemd-udevd.service")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(15*time.Minute, func() { cmd.Process.Kill() })
	defer stop.Stop()
	cmd.Wait() // the report says whether all is well
	return out.String()
}

// write makes a file.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
