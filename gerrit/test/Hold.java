import com.sun.jdi.Bootstrap;
import com.sun.jdi.ReferenceType;
import com.sun.jdi.VirtualMachine;
import com.sun.jdi.connect.AttachingConnector;
import com.sun.jdi.connect.Connector;
import com.sun.jdi.event.BreakpointEvent;
import com.sun.jdi.event.Event;
import com.sun.jdi.event.EventSet;
import com.sun.jdi.request.BreakpointRequest;
import com.sun.jdi.request.EventRequest;
import java.io.IOException;
import java.util.List;
import java.util.Map;

/**
 * Holds one thread of a JVM where a method begins, until something comes on the standard input. All other threads go on, also through that method.
 * Usage: java Hold.java PORT CLASS METHOD, of a JVM with -agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address=127.0.0.1:PORT.
 * It says "ready", and "held" when the first thread comes there. The class must have been loaded.
 */
public class Hold {
  public static void main(String[] args) throws Exception {
    VirtualMachine vm = attach(args[0]);
    List<ReferenceType> classes = vm.classesByName(args[1]);
    if (classes.isEmpty()) {
      throw new IllegalStateException("the JVM has not loaded " + args[1]);
    }
    var breakpoints = classes.stream().flatMap(c -> c.methodsByName(args[2]).stream()).map(m -> breakpoint(vm, m.location())).toList();
    if (breakpoints.isEmpty()) {
      throw new IllegalStateException(args[1] + " has no method " + args[2]);
    }
    System.out.println("ready");
    EventSet held = await(vm);
    breakpoints.forEach(BreakpointRequest::disable);
    System.out.println("held");
    System.in.read();
    held.resume();
    vm.dispose();
  }

  private static VirtualMachine attach(String port) throws Exception {
    for (AttachingConnector connector : Bootstrap.virtualMachineManager().attachingConnectors()) {
      if (connector.transport().name().equals("dt_socket")) {
        Map<String, Connector.Argument> arguments = connector.defaultArguments();
        arguments.get("hostname").setValue("127.0.0.1");
        arguments.get("port").setValue(port);
        return connector.attach(arguments);
      }
    }
    throw new IOException("this JDK can't attach to a socket");
  }

  private static BreakpointRequest breakpoint(VirtualMachine vm, com.sun.jdi.Location where) {
    BreakpointRequest request = vm.eventRequestManager().createBreakpointRequest(where);
    request.setSuspendPolicy(EventRequest.SUSPEND_EVENT_THREAD);
    request.addCountFilter(1);
    request.enable();
    return request;
  }

  /** The first thread at a breakpoint. Other events of a JVM suspend none. */
  private static EventSet await(VirtualMachine vm) throws InterruptedException {
    while (true) {
      EventSet events = vm.eventQueue().remove();
      for (Event event : events) {
        if (event instanceof BreakpointEvent) {
          return events;
        }
      }
      events.resume();
    }
  }
}
