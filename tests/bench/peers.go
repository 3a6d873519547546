package main

import (
	"fmt"
	"path/filepath"
)

// Ports in the namespace. No other program uses them.
const (
	proxyPort = 5000
	sinkPort  = 6000
)

// setting says what a proxy is to limit.
type setting struct {
	udp     bool
	rate    float64 // bytes/s upstream; 0: unlimited
	packets int     // packets/s upstream, for a proxy that can limit them; 0: no such limit
}

// unlimited is 160 Gbit/s in bytes/s. No machine reaches it, but the proxy still has to apply
// it to each piece.
const unlimited = 20e9

func (s setting) bytes() float64 {
	if s.rate == 0 {
		return unlimited
	}
	return s.rate
}

// way is a way from source to sink: direct, or through a proxy in one of its configurations.
type way struct {
	name         string
	config       func(s setting, dir, nginxRoot string) string            // the proxy's configuration; nil: the way is direct
	program      func(t tools, config string) (proxy tool, args []string) // what to run with the file config
	unprivileged bool                                                     // the proxy runs as nobody
}

var (
	direct       = way{name: "direct"}
	haproxy      = haproxyWay("haproxy", 0, true)
	haproxy64    = haproxyWay("haproxy, 64 KiB buffers", 64<<10, true)
	haproxy256   = haproxyWay("haproxy, 256 KiB buffers", 256<<10, true)
	haproxyFree  = haproxyWay("haproxy, no limit, splice", 0, false)
	nginx        = nginxWay("nginx", 0)
	nginx64      = nginxWay("nginx, 64 KiB buffers", 64<<10)
	nginx256     = nginxWay("nginx, 256 KiB buffers", 256<<10)
	shaper       = way{name: "shaper", config: shaperConfig, program: shaperProgram}
	shaperNobody = way{name: "shaper, unprivileged", config: shaperConfig, program: shaperProgram, unprivileged: true}
)

func shaperProgram(t tools, config string) (tool, []string) {
	return t.Shaper, []string{"-c", config, "run"}
}

func shaperConfig(s setting, _, _ string) string {
	protocol, rate := "tcp", fmt.Sprintf("%.0fbit", 8*s.bytes())
	if s.udp {
		protocol = "udp"
	}
	if s.packets > 0 {
		rate = fmt.Sprintf("%d packets/s", s.packets)
	}
	return fmt.Sprintf(`[daemon]
control = "control.sock"
http    = ""
drain   = "0s"

[class.work]
rate = %q

[listener.work]
listen   = "127.0.0.1:%d"
protocol = %q
upstream = "127.0.0.1:%d"
class    = "work"
`, rate, proxyPort, protocol, sinkPort)
}

// haproxyWay returns a way through HAProxy. If limited, HAProxy limits with bwlim, which turns
// splicing off. Otherwise it splices. A bufsize of 0 means HAProxy's default.
func haproxyWay(name string, bufsize int, limited bool) way {
	return way{
		name: name,
		config: func(s setting, _, _ string) string {
			return haproxyConfig(s, bufsize, limited)
		},
		program: func(t tools, config string) (tool, []string) {
			return t.HAProxy, []string{"-db", "-f", config}
		},
	}
}

func haproxyConfig(s setting, bufsize int, limited bool) string {
	global := "  nbthread 1\n"
	if bufsize > 0 {
		global += fmt.Sprintf("  tune.bufsize %d\n", bufsize)
	}
	listen := ""
	if limited {
		period, perPeriod := haproxyLimit(s)
		listen = fmt.Sprintf("  filter bwlim-in work default-limit %.0f default-period %s\n"+
			"  tcp-request content set-bandwidth-limit work\n", perPeriod, period)
	} else {
		global += "  tune.pipesize 1048576\n"
		listen = "  option splice-auto\n"
	}
	return fmt.Sprintf(`global
%s
defaults
  mode tcp
  timeout connect 10s
  timeout client 1h
  timeout server 1h

listen work
  bind 127.0.0.1:%d
%s  server sink 127.0.0.1:%d
`, global, proxyPort, listen, sinkPort)
}

// haproxyLimit returns a period and the bytes allowed in it. HAProxy stalls if a limit is near
// 2^32 bytes, so the unlimited rate has a period of a tenth of a second.
func haproxyLimit(s setting) (period string, bytes float64) {
	if s.rate == 0 {
		return "100ms", unlimited / 10
	}
	return "1s", s.rate
}

// nginxWay returns a way through nginx. A buffer of 0 means nginx's default.
func nginxWay(name string, buffer int) way {
	return way{
		name: name,
		config: func(s setting, dir, root string) string {
			return nginxConfig(s, buffer, dir, root)
		},
		program: func(t tools, config string) (tool, []string) {
			return t.Nginx, []string{"-p", filepath.Dir(config), "-e", "stderr", "-c", config}
		},
	}
}

func nginxConfig(s setting, buffer int, dir, root string) string {
	listen := fmt.Sprintf("127.0.0.1:%d", proxyPort)
	if s.udp {
		listen += " udp rcvbuf=4m" // as in shaper
	}
	extra := ""
	if buffer > 0 {
		extra = fmt.Sprintf("    proxy_buffer_size %d;\n", buffer)
	}
	return fmt.Sprintf(`load_module %s;
user root;
daemon off;
worker_processes 1;
worker_rlimit_nofile 100000;
pid %s;
error_log stderr warn;
events { worker_connections 50000; }
stream {
  server {
    listen %s;
    proxy_pass 127.0.0.1:%d;
    proxy_upload_rate %.0f;
    proxy_timeout 1h;
%s  }
}
`, filepath.Join(root, "usr/lib/nginx/modules/ngx_stream_module.so"), filepath.Join(dir, "nginx.pid"),
		listen, sinkPort, s.bytes(), extra)
}
