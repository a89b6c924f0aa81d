"""Guests as libvirt domains.

``guest_xml`` builds the XML of a guest; ``hardware_xml`` adds what its flavor and image request, ``numa_xml`` its
placement on CPUs and memory. ``domains`` defines, starts, stops and removes the domains of this host. ``events``
reports changes of their power states. ``consoles`` configures VNC, SPICE and serial ports, ``console_log`` reads the
output of the serial console, and ``diagnostics`` the counters of a running guest. ``rescue`` boots a guest from a
rescue image, ``live_migration`` moves a running guest to another host. ``hardware_page`` generates the documentation of
the supported hardware.
"""
