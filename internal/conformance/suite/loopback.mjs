// Preloaded into the suite's origin server, which would listen on every interface: binds whatever listens
// to the loopback interface.
import net from 'node:net'

const listen = net.Server.prototype.listen
net.Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, Number(port), '127.0.0.1', ...rest)
}
