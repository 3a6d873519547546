// Package web is the dashboard: it shows in a browser what a running shaper does, and why what
// waits is waiting. It changes nothing. Beside it stands the playground, which simulates policies in
// the browser, by the program of web/play.
//
// [New] makes a [Dashboard] of a [Source], which is the daemon. The dashboard serves a page, and
// one stream of events for whatever view of it is open. It keeps the last hour of each class.
//
// # Files
//
// A file calls only those below it.
//
//	dashboard  [Dashboard]: the handler, and the goroutine that samples the classes
//	stream     the events of an open view
//	view       what each view shows
//	history    the last hour of each class
//	source     [Source]: what the dashboard asks the daemon
//	guard      who may ask: the field Host, and what a browser may do with the answer
//	asset      the files of the pages
//	thread_linux, thread_other  how long a thread has worked
package web
