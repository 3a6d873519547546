package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
)

// way is a way from source to sink: direct, or through a proxy in one of its configurations.
type way struct {
	name         string
	config       func(s setting, dir, nginxRoot string) string            // the proxy's configuration; nil: the way is direct
	program      func(t tools, config string) (proxy tool, args []string) // what to run with the file config
	unprivileged bool                                                     // the proxy runs as nobody
	launch       launcher                                                 // starts the proxy; nil: nothing is before its command
	neighbours   int                                                      // busy loops on the processor of the proxy
	awake        bool                                                     // loops of idle priority keep both processors from sleeping
	shapeLink    func(s setting) (undo func(), err error)                 // what limits the direct way; nil: nothing does

	asks   string // what the source says first, to an entry; "": it says nothing
	answer int    // the bytes of the answer
}

// peer returns which program the way goes through, as -ways names it.
func (w way) peer() string {
	peer, _, _ := strings.Cut(w.name, ",")
	return peer
}

var (
	direct        = way{name: "direct"}
	htb           = way{name: "tc htb", shapeLink: htbLink}
	haproxy       = haproxyWay("haproxy", 0, bwlim)
	haproxy64     = haproxyWay("haproxy, 64 KiB buffers", 64<<10, bwlim)
	haproxy256    = haproxyWay("haproxy, 256 KiB buffers", 256<<10, bwlim)
	haproxyFree   = haproxyWay("haproxy, no limit, splice", 0, splice)
	haproxyTable  = haproxyWay("haproxy, stick table", 0, bwlimTable)
	kannel        = way{name: "kannel", config: kannelConfig, program: kannelProgram}
	nginx         = nginxWay("nginx", "")
	nginx64       = nginxWay("nginx, 64 KiB buffers", "proxy_buffer_size 64k;")
	nginx256      = nginxWay("nginx, 256 KiB buffers", "proxy_buffer_size 256k;")
	nginxHalf     = nginxWay("nginx, half-close", "proxy_half_close on;")
	shaper        = way{name: "shaper", config: shaperConfig, program: shaperProgram}
	shaperNobody  = way{name: "shaper, unprivileged", config: shaperConfig, program: shaperProgram, unprivileged: true}
	shaperSOCKS   = entryWay("socks5", "\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01"+string([]byte{sinkPort >> 8, sinkPort & 0xff}), 2+10)
	shaperCONNECT = entryWay("connect", fmt.Sprintf("CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n", sinkPort), len("HTTP/1.1 200 Connection established\r\n\r\n"))
)

func shaperProgram(t tools, config string) (tool, []string) {
	return t.Shaper, []string{"-c", config, "run"}
}

// entryWay is the way through an entry of shaper.
func entryWay(mode, asks string, answer int) way {
	leads := fmt.Sprintf("mode     = %q\nallow    = \"127.0.0.1:%d\"\n", mode, sinkPort)
	return way{
		name:    "shaper, " + mode,
		config:  func(s setting, _, _ string) string { return shaperPolicy(s, leads) },
		program: shaperProgram,
		asks:    asks, answer: answer,
	}
}

func shaperConfig(s setting, _, _ string) string {
	return shaperPolicy(s, fmt.Sprintf("protocol = %q\nupstream = \"127.0.0.1:%d\"\n", cmp.Or(s.protocol, "tcp"), sinkPort))
}

// shaperPolicy returns a policy with a listener. leads are the keys that say where that leads.
func shaperPolicy(s setting, leads string) string {
	rate := fmt.Sprintf("%.0fbit", 8*s.bytes())
	switch {
	case s.number > 0 && s.udp():
		rate = fmt.Sprintf("%d packets/s", s.number)
	case s.number > 0:
		rate = fmt.Sprintf("%d messages/s", s.number)
	}
	return fmt.Sprintf(`[daemon]
control = "control.sock"
http    = ""
drain   = "0s"

[class.work]
rate = %q

[listener.work]
listen   = "127.0.0.1:%d"
%sclass    = "work"
`, rate, proxyPort, leads)
}

// The ways in which HAProxy limits. A limit turns splicing off.
const (
	splice     = iota // no limit
	bwlim             // of each connection
	bwlimTable        // of all connections of a client together, in a stick table
)

// haproxyWay returns a way through HAProxy. A bufsize of 0 means HAProxy's default.
func haproxyWay(name string, bufsize, limited int) way {
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

func haproxyConfig(s setting, bufsize, limited int) string {
	global := "  nbthread 1\n"
	if bufsize > 0 {
		global += fmt.Sprintf("  tune.bufsize %d\n", bufsize)
	}
	period, perPeriod := haproxyLimit(s)
	listen := ""
	switch limited {
	case splice:
		global += "  tune.pipesize 1048576\n"
		listen = "  option splice-auto\n"
	case bwlim:
		listen = fmt.Sprintf("  filter bwlim-in work default-limit %.0f default-period %s\n", perPeriod, period)
	case bwlimTable:
		listen = fmt.Sprintf("  stick-table type ip size 1k expire 1h store bytes_in_rate(%s)\n"+
			"  filter bwlim-in work limit %.0f key src\n", period, perPeriod)
	}
	if limited != splice {
		listen += "  tcp-request content set-bandwidth-limit work\n"
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

// nginxWay returns a way through nginx, with a directive of its stream module, if there is one.
func nginxWay(name, directive string) way {
	return way{
		name: name,
		config: func(s setting, dir, root string) string {
			if s.protocol == "http" {
				return nginxRequests(s, dir)
			}
			return nginxConfig(s, directive, dir, root)
		},
		program: func(t tools, config string) (tool, []string) {
			return t.Nginx, []string{"-p", filepath.Dir(config), "-e", "stderr", "-c", config}
		},
	}
}

func nginxConfig(s setting, directive, dir, root string) string {
	listen := fmt.Sprintf("127.0.0.1:%d", proxyPort)
	if s.udp() {
		listen += " udp rcvbuf=4m" // as in shaper
	}
	return fmt.Sprintf(`load_module %s;
%s
stream {
  server {
    listen %s;
    proxy_pass 127.0.0.1:%d;
    proxy_upload_rate %.0f;
    proxy_timeout 1h;
    %s
  }
}
`, filepath.Join(root, "usr/lib/nginx/modules/ngx_stream_module.so"), nginxMain(dir),
		listen, sinkPort, s.bytes(), directive)
}

// nginxRequests has limit_req delay requests, all in one zone.
func nginxRequests(s setting, dir string) string {
	return fmt.Sprintf(`%s
http {
  access_log off;
  client_body_temp_path %[2]s;
  proxy_temp_path %[2]s;
  fastcgi_temp_path %[2]s;
  uwsgi_temp_path %[2]s;
  scgi_temp_path %[2]s;
  keepalive_requests 1000000;
  limit_req_zone $server_port zone=work:1m rate=%[3]dr/s;
  upstream sink { server 127.0.0.1:%[4]d; keepalive 64; keepalive_requests 1000000; }
  server {
    listen 127.0.0.1:%[5]d;
    location / {
      limit_req zone=work burst=1000;
      proxy_pass http://sink;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }
  }
}
`, nginxMain(dir), dir, s.number, sinkPort, proxyPort)
}

func nginxMain(dir string) string {
	return fmt.Sprintf(`user root;
daemon off;
worker_processes 1;
worker_rlimit_nofile 100000;
pid %s;
error_log stderr warn;
events { worker_connections 50000; }`, filepath.Join(dir, "nginx.pid"))
}
